// The map: test and training tasks in the simplex of task-themes, in space or flat.
const GROUPS = ["#4477AA", "#CC6677", "#228833", "#CCA43B", "#66CCEE", "#AA3377", "#5C4B8A",
  "#882255", "#44AA99", "#999933", "#DD7755", "#3B6E22"];
const TEST_COLOUR = "#C04A00";
const TRAIN_COLOUR = "#7fa8c9";
const place = { view: "flat", marks: null };

/** A browser without WebGL gets the flat map. */
function canDrawInSpace() {
  if (!data.map.solid) return false;
  const canvas = document.createElement("canvas");
  return Boolean(canvas.getContext("webgl") || canvas.getContext("experimental-webgl"));
}

function coordinates(points) {
  const axes = place.view === "solid" ? ["x", "y", "z"] : ["x", "y"];
  return Object.fromEntries(axes.map((axis, i) => [axis, points.map((point) => point[i])]));
}

const type = () => (place.view === "solid" ? "scatter3d" : "scatter");
/** A training task is told from a test task by a negative number. */
const code = (kind, i) => (kind === "test" ? i : -1 - i);
const decode = (number_) => (number_ >= 0 ? ["test", number_] : ["train", -1 - number_]);

function points(kind, which, marker, more = {}) {
  const small = kind === "train";
  const size = place.view === "solid" ? (small ? 3 : 4) : (small ? 5 : 8);
  return {
    type: type(),
    mode: "markers",
    hoverinfo: "none",
    ...coordinates(which.map((i) => data[kind][place.view][i])),
    customdata: which.map((i) => code(kind, i)),
    marker: {
      size,
      symbol: small ? "circle" : "diamond",
      opacity: small ? 0.55 : 0.85,
      line: { width: small || place.view === "solid" ? 0 : 0.5, color: "#fff" },
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

/** The corners with the themes' numbers, and the edges where they mean something. */
function frame() {
  const corners = place.view === "solid" ? data.map.solid : data.map.corners;
  const edges = [];
  if (corners.length <= 4) {
    corners.forEach((a, i) => corners.slice(i + 1).forEach((b) => edges.push(a, b, a.map(() => null))));
  }
  const still = { hoverinfo: "skip", showlegend: false, type: type() };
  return [
    { ...still, mode: "lines", ...coordinates(edges), line: { color: FAINT, width: place.view === "solid" ? 3 : 1.5 } },
    {
      ...still,
      mode: "markers+text",
      ...coordinates(corners),
      text: corners.map((_, i) => `theme ${i + 1}`),
      textposition: "top center",
      cliponaxis: false,
      textfont: { size: 13, color: data.themes },
      marker: { size: place.view === "solid" ? 5 : 9, color: data.themes, symbol: "circle" },
    },
  ];
}

function mapLayout() {
  const div = byId("chart-map");
  const away = Math.max(1, (1.05 * div.clientHeight) / Math.max(1, div.clientWidth));
  const legend = { orientation: "h", x: 0, y: 1, yanchor: "bottom", itemsizing: "constant", font: { size: 12 } };
  if (place.view === "solid") {
    const off = { visible: false, showspikes: false };
    return styled({
      legend,
      uirevision: "solid",
      margin: { l: 0, r: 0, t: 0, b: 0 },
      dragmode: "orbit",
      scene: {
        xaxis: off, yaxis: off, zaxis: off, aspectmode: "data",
        camera: { eye: { x: 1.15 * away, y: -1.38 * away, z: 0.46 * away }, center: { x: 0, y: 0, z: -0.1 } },
      },
    }, div);
  }
  const [across, up] = data.map.axes;
  const bare = { showticklabels: false, ticks: "", showgrid: false, showline: false };
  const yaxis = { title: { text: literal(up) }, ...bare };
  if (data.map.kind !== "line") yaxis.scaleanchor = "x";
  return styled({
    legend,
    uirevision: "flat",
    xaxis: { title: { text: literal(across) }, ...(data.map.kind === "line" ? { tickformat: ".0%" } : bare) },
    yaxis: data.map.kind === "line" ? { ...yaxis, range: [-1.6, 1.6] } : yaxis,
  }, div);
}

const CAPTIONS = {
  solid: "Drag to turn the map, scroll over it to come nearer.",
  line: "From left to right the share of the second theme grows; the height means nothing.",
  triangle: "A point in the middle has as much of one theme as of the others.",
  projection: "The flat view in which the tasks differ most; distances in it are only a part of the truth.",
};

function drawMap() {
  const [edges, corners] = frame();
  const traces = [edges, ...colouredBy(byId("colour").value), corners];
  place.marks = traces.length;
  traces.push(...selectionTraces());
  byId("map-caption").textContent = CAPTIONS[place.view === "solid" ? "solid" : data.map.kind];
  return Plotly.react(byId("chart-map"), traces, mapLayout(), { ...CONFIG, scrollZoom: "gl3d" });
}

/** The open task and its nearest training tasks, ringed. */
function selectionTraces() {
  const { kind, index } = shownTask;
  const near = kind === "test" ? data.test.nearest[index] || [] : [];
  const size = place.view === "solid" ? 9 : 15;
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
  for (const axis of place.view === "solid" ? ["x", "y", "z"] : ["x", "y"]) {
    update[axis] = traces.map((t) => t[axis]);
  }
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
  let hovered = null;
  div.on("plotly_hover", ({ points: [point] }) => {
    hovered = point.customdata;
    if (known(hovered)) showTip(tipOf(...decode(hovered)), pointer);
  });
  div.on("plotly_unhover", () => {
    hovered = null;
    showTip(null);
  });
  function open(code) {
    if (!known(code)) return;
    const [kind, index] = decode(code);
    if (kind === shownTask.kind && index === shownTask.index) return;
    showTask(kind, index);
    if (window.innerWidth < 1024) byId("panel").scrollIntoView({ block: "nearest" });
  }
  div.on("plotly_click", ({ points: [point] }) => {
    if (place.view !== "solid") open(point.customdata);
  });
  // In space plotly tells of a click only if it happens to draw while the button is down.
  let pressed = null;
  div.addEventListener("pointerdown", ({ clientX, clientY }) => (pressed = { clientX, clientY, hovered }), true);
  div.addEventListener("pointerup", ({ clientX, clientY }) => {
    if (place.view !== "solid" || pressed === null) return;
    const moved = Math.hypot(clientX - pressed.clientX, clientY - pressed.clientY);
    if (moved < 5) open(pressed.hovered);
    pressed = null;
  }, true);
}
