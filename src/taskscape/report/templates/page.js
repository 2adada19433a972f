// What every part of the page uses: the data, elements made from text, numbers in words, the tip.
const data = JSON.parse(document.getElementById("data-island").textContent);
const byId = (id) => document.getElementById(id);

/** An element; strings among its children become text, never markup. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (name === "style") node.style.cssText = value;
    else if (name === "onclick") node.addEventListener("click", value);
    else node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}

/** Text as plotly shows it unchanged: plotly reads some HTML, %{…} and $…$. */
function literal(text) {
  const codes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "%": "&#37;", $: "&#36;" };
  return String(text).replace(/[&<>%$]/g, (sign) => codes[sign]);
}

const known = (value) => value !== null && value !== undefined;
const percent = (value, digits = 1) => (known(value) ? `${(100 * value).toFixed(digits)} %` : "–");
const signed = (value) => {
  const points = Math.abs(100 * value).toFixed(1);
  return points === "0.0" ? "0.0" : `${value < 0 ? "−" : "+"}${points}`;
};

function number(value) {
  if (!known(value)) return "–";
  if (Math.abs(value) < 0.001) return "0.00";
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

/** A class as a picture, where there are pictures. */
function thumb(c) {
  const name = data.classes[c];
  const { columns } = data.sheet;
  return el("span", {
    class: "thumb of-classes",
    role: "img",
    "aria-label": name,
    title: name,
    style: `--x:${c % columns};--y:${Math.floor(c / columns)}`,
  });
}

/** Some classes in a row: pictures, or names where there are none. */
function pile(classes) {
  if (data.sheet) return el("span", { class: "pile" }, classes.map(thumb));
  return el("span", {}, classes.map((c, i) => [i ? ", " : "", data.classes[c], said(c)]).flat());
}

/** A sample of the class, where samples are sentences. */
function said(c) {
  return data.said?.[c] ? el("span", { class: "quiet" }, ` “${data.said[c]}”`) : null;
}

/** Shows something beside the pointer; null hides it. */
function showTip(content, event) {
  const tip = byId("tip");
  tip.hidden = content === null;
  if (content === null) return;
  tip.replaceChildren(content);
  const room = 14;
  const { width, height } = tip.getBoundingClientRect();
  const right = event.clientX + room + width < window.innerWidth;
  const below = event.clientY + room + height < window.innerHeight;
  tip.style.left = `${Math.max(4, right ? event.clientX + room : event.clientX - room - width)}px`;
  tip.style.top = `${Math.max(4, below ? event.clientY + room : event.clientY - room - height)}px`;
}
