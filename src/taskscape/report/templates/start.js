// Starting up: the list and the panel at once, figures one by one, nearest to the reader first.
const pause = () => new Promise((resolve) => setTimeout(resolve));

function wireControls() {
  byId("search").addEventListener("input", listTasks);
  byId("order").addEventListener("change", listTasks);
  byId("tasks").addEventListener("change", (event) => showTask("test", Number(event.target.value)));
  byId("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const [first] = listTasks();
    if (first !== undefined) showTask("test", first);
  });
  byId("colour").addEventListener("change", drawMap);
  byId("copy").addEventListener("click", copyCommand);
}

async function copyCommand() {
  const text = byId("command").textContent;
  try {
    await navigator.clipboard.writeText(text);
    byId("copy").textContent = "Copied";
  } catch {
    window.getSelection().selectAllChildren(byId("command"));
    byId("copy").textContent = "Selected";
  }
}

/** Pixels that fit on a page of A4 or letter. */
function paperSize(div) {
  const heights = { tall: 400, square: 540 };
  const shape = Object.keys(heights).find((name) => div.classList.contains(name));
  return { width: div.closest(".pair") ? 310 : 640, height: heights[shape] || 240 };
}

/** Paper is narrower than most screens. */
function wirePrinting() {
  const charts = () => [...document.querySelectorAll(".chart.js-plotly-plot")];
  window.addEventListener("beforeprint", () => {
    for (const div of charts()) Plotly.relayout(div, { ...paperSize(div), autosize: false });
  });
  window.addEventListener("afterprint", () => {
    for (const div of charts()) Plotly.relayout(div, { width: null, height: null, autosize: true });
  });
}

/** Says of tables that are wider than the screen that they scroll. */
function markWide() {
  for (const div of document.querySelectorAll(".scroll")) div.classList.toggle("wide", div.scrollWidth > div.clientWidth + 1);
}

/** Marks in the contents where the reader is. */
function followReader() {
  const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      for (const [id, link] of links) {
        link.classList.toggle("here", id === target.id);
        if (id === target.id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-15% 0px -75% 0px" });
  for (const section of document.querySelectorAll("main > section")) seen.observe(section);
}

async function start() {
  wireControls();
  followReader();
  markWide();
  window.addEventListener("resize", markWide);
  document.addEventListener("toggle", markWide, true);
  const [first] = listTasks();
  if (first !== undefined) showTask("test", first, { quiet: true });
  await pause();
  for (const div of document.querySelectorAll("[data-figure]")) {
    await drawFigure(div);
    await pause();
  }
  await drawMap();
  wireMap();
  wireFigures();
  wirePrinting();
  document.documentElement.dataset.ready = "yes";
}

start();
