// The map: test and training tasks where their samples lie.
const GROUPS = ["#4477AA", "#CC6677", "#228833", "#CCA43B", "#66CCEE", "#AA3377", "#5C4B8A",
  "#882255", "#44AA99", "#999933", "#DD7755", "#3B6E22"];
const TEST_COLOUR = "#C04A00";
const TRAIN_COLOUR = "#7fa8c9";
/** How many traces stand before those of the open task; null while there is no map. */
const place = { marks: null };

function coordinates(points) {
  return { x: points.map((point) => point[0]), y: points.map((point) => point[1]) };
}

/** A training task is told from a test task by a negative number. */
const code = (kind, i) => (kind === "test" ? i : -1 - i);
const decode = (number_) => (number_ >= 0 ? ["test", number_] : ["train", -1 - number_]);

function points(kind, which, marker, more = {}) {
  const small = kind === "train";
  return {
    type: "scatter",
    mode: "markers",
    hoverinfo: "none",
    ...coordinates(which.map((i) => data[kind].at[i])),
    customdata: which.map((i) => code(kind, i)),
    marker: {
      size: small ? 5 : 8,
      symbol: small ? "circle" : "diamond",
      opacity: small ? 0.55 : 0.85,
      line: { width: small ? 0 : 0.5, color: "#fff" },
      ...marker,
    },
    ...more,
  };
}

const everyTask = (kind) =>
  [...Array(kind === "test" ? data.test.id.length : data.train.shown).keys()];

function bySplit() {
  return [
    points("train", everyTask("train"), { color: TRAIN_COLOUR }, { name: "training tasks" }),
    points("test", everyTask("test"), { color: TEST_COLOUR }, { name: "test tasks" }),
  ];
}

/** One colour for each group that most of a task's classes belong to. */
function byGroup() {
  const kinds = [-1, -2, ...data.groups.keys()];
  const traces = [];
  for (const group of kinds) {
    const name = group === -1 ? "mixed" : group === -2 ? "other groups" : literal(data.groups[group]);
    const color = group === -1 ? FAINT : group === -2 ? "#7b8794" : GROUPS[group % GROUPS.length];
    let inLegend = false;
    for (const kind of ["train", "test"]) {
      const which = everyTask(kind).filter((i) => data[kind].group[i] === group);
      if (!which.length) continue;
      traces.push(points(kind, which, { color }, { name, legendgroup: name, showlegend: !inLegend }));
      inLegend = true;
    }
  }
  return traces;
}

function byNumber(values, title, format) {
  const tests = everyTask("test");
  const [with_, without] = [tests.filter((i) => known(values[i])), tests.filter((i) => !known(values[i]))];
  const beside = {
    title: { text: literal(title), side: "right" }, thickness: 10, len: 0.75, outlinewidth: 0, tickformat: format,
  };
  const colorbar = narrow(byId("chart-map")) ? below(beside, -0.06) : beside;
  const traces = [points("train", everyTask("train"), { color: "#d5dbe1" }, { name: "training tasks", showlegend: false })];
  if (without.length) traces.push(points("test", without, { color: "#7b8794" }, { name: "unknown" }));
  const marker = { color: with_.map((i) => values[i]), colorscale: data.scale, colorbar, showscale: true };
  traces.push(points("test", with_, marker, { name: "test tasks", showlegend: false }));
  return traces;
}

function colouredBy(choice) {
  const [what, learner] = [choice.split(":")[0], choice.slice(choice.indexOf(":") + 1)];
  if (what === "group") return byGroup();
  if (what === "distance") return byNumber(data.test.distance, `mean ${data.unit}`, "");
  if (what === "difficulty") return byNumber(data.test.difficulty, "difficulty", "");
  if (what === "accuracy") return byNumber(data.test.accuracy[learner], "accuracy", ".0%");
  if (what === "forecast") return byNumber(data.test.forecast[learner].expected, "expected accuracy", ".0%");
  return bySplit();
}

function mapLayout() {
  const bare = { showticklabels: false, ticks: "", showgrid: false, showline: false };
  const [across, up] = data.axes.map((text) => ({ title: { text: literal(text) }, ...bare }));
  const legend = { orientation: "h", x: 0, y: 1, yanchor: "bottom", itemsizing: "constant", font: { size: 12 } };
  return styled({ legend, uirevision: "map", xaxis: across, yaxis: { ...up, scaleanchor: "x" } }, byId("chart-map"));
}

function drawMap() {
  const traces = colouredBy(byId("colour").value);
  place.marks = traces.length;
  traces.push(...selectionTraces());
  return Plotly.react(byId("chart-map"), traces, mapLayout(), CONFIG);
}

/** The open task and its nearest training tasks, ringed. */
function selectionTraces() {
  const { kind, index } = shownTask;
  const near = kind === "test" ? data.test.nearest[index] || [] : [];
  const size = 15;
  const ring = (color, symbol, size_) => ({ size: size_, symbol, color, opacity: 1, line: { width: 2, color } });
  return [
    points("train", near, ring("#0b5394", "circle-open", size * 0.75), { name: "its nearest", showlegend: near.length > 0 }),
    points(kind, [index], ring("#000", "diamond-open", size), { name: "open task", showlegend: true }),
  ];
}

function markOnMap() {
  if (place.marks === null) return;
  const traces = selectionTraces();
  const update = { customdata: traces.map((t) => t.customdata), showlegend: traces.map((t) => t.showlegend) };
  for (const axis of ["x", "y"]) update[axis] = traces.map((t) => t[axis]);
  Plotly.restyle(byId("chart-map"), update, [place.marks, place.marks + 1]);
}

function tipOf(kind, index) {
  const classes = data[kind].classes[index];
  const inside = data.sheet
    ? el("div", { class: "thumbs" }, classes.map(thumb))
    : el("div", { class: "chips" }, classes.map((c) => data.classes[c]).join(", "));
  const names = data.sheet ? el("div", { class: "quiet" }, classes.map((c) => data.classes[c]).join(", ")) : null;
  return el("div", {}, el("strong", {}, taskName(kind, index)), inside, names);
}

function wireMap() {
  const div = byId("chart-map");
  let pointer = { clientX: 0, clientY: 0 };
  div.addEventListener("pointermove", (event) => (pointer = event));
  div.addEventListener("pointerleave", () => showTip(null));
  div.on("plotly_hover", ({ points: [point] }) => {
    if (known(point.customdata)) showTip(tipOf(...decode(point.customdata)), pointer);
  });
  div.on("plotly_unhover", () => showTip(null));
  div.on("plotly_click", ({ points: [point] }) => {
    if (!known(point.customdata)) return;
    const [kind, index] = decode(point.customdata);
    if (kind === shownTask.kind && index === shownTask.index) return;
    showTask(kind, index);
    if (window.innerWidth < 1024) byId("panel").scrollIntoView({ block: "nearest" });
  });
}
