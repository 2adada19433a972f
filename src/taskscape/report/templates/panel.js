// The panel of one task, and the list from which test tasks are chosen without a pointer.
const shownTask = { kind: "test", index: 0 };

function taskName(kind, index) {
  return `${kind === "test" ? "Test" : "Training"} task ${data[kind].id[index]}`;
}

function bar(label, marks, value, description) {
  return [
    el("span", {}, label),
    el("span", { class: "track", role: "img", "aria-label": description }, marks),
    el("span", { class: "value" }, value),
  ];
}

const at = (share) => `${(100 * Math.min(1, Math.max(0, share))).toFixed(2)}%`;

function mark(kind, from, to, colour) {
  const width = to === null ? "" : `;width:${at(to - from)}`;
  return el("i", { class: kind, style: `left:${at(from)}${width};--c:${colour || INK}` });
}

function classList(classes) {
  return el("ul", { class: "named" },
    classes.map((c) => el("li", {}, data.sheet ? thumb(c) : null, el("span", {}, data.classes[c], said(c)))));
}

/** Where a task stands among the test tasks, such as "farther than 40 % of the test tasks". */
function rank(values, index, more) {
  const others = values.filter((value, i) => known(value) && i !== index);
  const below = others.filter((value) => value < values[index]).length;
  if (below === others.length) return `${more} than every other test task`;
  return `${more} than ${Math.floor((100 * below) / others.length)} % of the test tasks`;
}

function facts(index) {
  const { distance, difficulty } = data.test;
  const far = `${number(distance[index])} ${data.short_unit}`.trim();
  const parts = [`Mean distance to the training tasks ${far}: ${rank(distance, index, "farther")}.`];
  if (known(difficulty[index])) parts.push(` In itself ${rank(difficulty, index, "harder")}.`);
  return el("p", {}, parts);
}

/** Accuracy of each learner: expected, its interval, and what was measured. */
function accuracies(index) {
  const { accuracy, forecast, episodes } = data.test;
  const learners = Object.keys(data.learners).filter((name) => name in accuracy || name in forecast);
  if (!learners.length) return [];
  const rows = learners.map((name) => {
    const [was, told] = [accuracy[name]?.[index], forecast[name]];
    const colour = data.learners[name];
    const marks = [];
    let words = "";
    if (told && known(told.expected[index])) {
      if (known(told.low[index]) && known(told.high[index])) {
        marks.push(mark("span", told.low[index], told.high[index], colour));
        words = ` (${(100 * told.low[index]).toFixed(0)}–${(100 * told.high[index]).toFixed(0)})`;
      }
      marks.push(mark("mark", told.expected[index], null, colour));
    }
    if (known(was)) marks.push(mark("was", was, null));
    const expected = told ? `expected ${percent(told.expected[index], 0)}${words}` : "";
    const actual = known(was) ? `actual ${percent(was, 0)}` : "";
    const value = [expected, expected && actual ? el("br") : "", actual];
    return bar(name, marks, value, `${name}: ${expected} ${actual}`);
  });
  const shares = Object.values(forecast).map((told) => `${100 * told.confidence} %`);
  const legend = shares.length ? `Coloured mark: expected, with its ${shares[0]} interval in pale. ` : "";
  const runs = Object.values(episodes).filter(known);
  const asked = data.asked ? `${data.asked}, ` : "";
  const measured = runs.length ? `Black line: measured, ${asked}mean of ${Math.max(...runs)} episodes.` : "";
  return [
    el("h4", {}, shares.length ? "Expected accuracy" : "Accuracy"),
    el("div", { class: "bars" }, rows.flat()),
    el("p", { class: "quiet" }, legend + measured),
    learners.map((name) => reasons(name, index)),
  ].flat();
}

/** How far each reason moves the forecast from that of the average task. */
function reasons(learner, index) {
  const told = data.test.forecast[learner];
  const given = told ? Object.entries(told.reasons).filter(([, by]) => known(by[index])) : [];
  if (!given.length) return null;
  const most = Math.max(0.02, ...given.map(([, by]) => Math.abs(by[index])));
  const ranked = given.sort(([, a], [, b]) => Math.abs(b[index]) - Math.abs(a[index]));
  const rows = ranked.map(([reason, by]) => {
    const share = by[index] / most / 2;
    const ends = share < 0 ? [0.5 + share, 0.5] : [0.5, 0.5 + share];
    const marks = [mark("fill", ends[0], ends[1], data.learners[learner]), mark("zero", 0.5, null)];
    const words = `${signed(by[index])} points`;
    return bar(reason, marks, words, `${reason}: ${words}`);
  });
  return el("details", { open: "" },
    el("summary", {}, `Why, for ${learner}`),
    el("div", { class: "bars" }, rows.flat()));
}

function neighbours(index) {
  const near = data.test.nearest[index];
  if (!near || !near.length) return [];
  const rows = near.map((train, i) => el("li", {}, el("button", {
    type: "button",
    onclick: () => showTask("train", train, { from: index }),
  },
    el("span", {}, String(data.train.id[train])),
    pile(data.train.classes[train]),
    el("span", { class: "value" }, howFar(index, i)))));
  const trust = data.trust ? el("p", { class: "quiet" }, `How far to trust this: ${data.trust}`) : null;
  return [el("h4", {}, "Nearest training tasks"), tied(index), el("ol", { class: "near" }, rows), trust];
}

/** The distance of a neighbour and, where that settles ties, how alike its classes are. */
function howFar(index, i) {
  const { nearest_distance: far, nearest_by_classes: alike } = data.test;
  const same = data.test.ties?.[index] > 1 && far[index][i] - far[index][0] <= data.tie;
  const short = same ? "not told apart" : `${far[index][i].toFixed(2)} ${data.short_unit}`.trim();
  return alike ? [short, el("br"), `classes ${alike[index][i].toFixed(2)} apart`] : short;
}

/** How many training tasks are equally near, and what their order goes by. */
function tied(index) {
  const ties = data.test.ties?.[index];
  if (!known(ties) || !data.test.nearest_by_classes) return null;
  const order = "The order among equals is that of their class means: how far apart they are, each with its best partner.";
  if (ties < 2) return el("p", { class: "quiet" }, "No other is as near as the first.");
  const within = data.short_unit ? ` (within ${data.tie} ${data.short_unit})` : "";
  return el("p", { class: "quiet" }, `${ties.toLocaleString("en")} are not told apart from the nearest${within}. ${order}`);
}

/** Opens a task in the panel and marks it on the map; `from` is the test task to go back to. */
function showTask(kind, index, { from = null, quiet = false } = {}) {
  Object.assign(shownTask, { kind, index });
  const tasks = data[kind];
  const back = from === null ? null : el("button", {
    type: "button",
    onclick: () => { showTask("test", from); byId("panel").focus(); },
  }, `Back to test task ${data.test.id[from]}`);
  const parts = [
    el("h3", { id: "panel-title" }, taskName(kind, index)),
    back,
    classList(tasks.classes[index]),
    ...(kind === "test" ? [facts(index), ...accuracies(index)] : []),
    ...(kind === "test" ? neighbours(index) : []),
  ];
  byId("panel").replaceChildren(...parts.filter((part) => part !== null));
  if (from !== null) byId("panel").focus({ preventScroll: true });
  if (kind === "test") byId("tasks").value = String(index);
  if (!quiet) {
    const names = tasks.classes[index].map((c) => data.classes[c]).join(", ");
    byId("status").textContent = `${taskName(kind, index)} is shown: ${names}.`;
  }
  markOnMap();
}

// -- the list ------------------------------------------------------------------------------------
const LISTED = 300;
const ORDERS = {
  far: (i) => [data.test.distance[i], -1],
  near: (i) => [data.test.distance[i], 1],
  hard: (i) => [data.test.difficulty[i], -1],
  id: (i) => [data.test.id[i], 1],
};

function order(name) {
  if (name in ORDERS) return ORDERS[name];
  const learner = name.slice(name.indexOf(":") + 1);
  return (i) => [data.test.accuracy[learner][i], 1];
}

function words(index) {
  const group = data.test.group ? data.groups[data.test.group[index]] : "";
  const names = data.test.classes[index].map((c) => data.classes[c]);
  return { names: names.join(", "), searched: [data.test.id[index], group, ...names].join(" ").toLowerCase() };
}

/** Lists the test tasks that match the search, in the chosen order. */
function listTasks() {
  const wanted = byId("search").value.trim().toLowerCase();
  const key = order(byId("order").value);
  const found = data.test.id.map((_, i) => i).filter((i) => words(i).searched.includes(wanted));
  const sorting = (i) => {
    const [value, sign] = key(i);
    return known(value) ? sign * value : Infinity;
  };
  found.sort((a, b) => sorting(a) - sorting(b) || a - b);
  byId("tasks").replaceChildren(...found.slice(0, LISTED).map((i) =>
    el("option", { value: i }, `${data.test.id[i]}: ${words(i).names}`)));
  const more = found.length > LISTED ? `, the first ${LISTED} listed` : "";
  byId("found").textContent = `(${found.length.toLocaleString("en")} of ${data.test.id.length.toLocaleString("en")}${more})`;
  if (shownTask.kind === "test") byId("tasks").value = String(shownTask.index);
  return found;
}
