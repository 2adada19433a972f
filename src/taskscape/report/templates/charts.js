// The figures: one look for all of them, drawn one after another while the page stays usable.
const INK = "#1f2933";
const FAINT = "#b8c2cc";
const FONT = { family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", size: 13, color: INK };
const CONFIG = { displaylogo: false, responsive: true, displayModeBar: false, scrollZoom: false };
const AXIS = {
  automargin: true,
  gridcolor: "#e4e7eb",
  zeroline: false,
  linecolor: "#9aa5b1",
  tickcolor: "#9aa5b1",
  ticks: "outside",
  ticklen: 4,
  fixedrange: true,
};

/** Phones, where long titles take two lines and colour bars lie below. */
const narrow = (div) => div.clientWidth < 480;

function wrapped(text) {
  const middle = text.indexOf(" ", text.length / 2 - 6);
  return text.length < 36 || middle < 0 ? text : `${text.slice(0, middle)}<br>${text.slice(middle + 1)}`;
}

function below(colorbar, y) {
  const title = { ...colorbar.title, side: "top" };
  return { ...colorbar, orientation: "h", x: 0.5, xanchor: "center", y, yanchor: "top", len: 0.9, title };
}

/** A layout in the page's style; what the figure says itself wins. */
function styled(layout, div) {
  const full = {
    font: FONT,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 10, r: 12, t: 12, b: 10 },
    legend: { orientation: "h", x: 0, y: 1.03, yanchor: "bottom", font: { size: 12.5 } },
    hoverlabel: { bgcolor: "#fff", bordercolor: "#d5dbe1", font: { ...FONT, size: 12.5 } },
    hovermode: "closest",
    dragmode: false,
    ...layout,
  };
  for (const name of Object.keys(full)) {
    if (/^[xy]axis\d*$/.test(name)) {
      const title = { standoff: 10, font: { size: 13 }, ...full[name].title };
      if (narrow(div)) title.text = wrapped(title.text || "");
      full[name] = { ...AXIS, ...full[name], title };
    }
  }
  return full;
}

function drawFigure(div) {
  const figure = data.figures[div.dataset.figure];
  for (const trace of figure.data) {
    if (trace.colorbar && narrow(div)) trace.colorbar = below(trace.colorbar, -0.16);
  }
  return Plotly.newPlot(div, figure.data, styled(figure.layout, div), CONFIG);
}

/** A click on a forecast opens its task. */
function wireFigures() {
  for (const div of document.querySelectorAll('[data-figure^="forecast-"]')) {
    div.on("plotly_click", ({ points: [point] }) => {
      if (!known(point.customdata)) return;
      showTask("test", point.customdata[1]);
      byId("panel").scrollIntoView({ block: "nearest" });
      byId("panel").focus({ preventScroll: true });
    });
  }
}
