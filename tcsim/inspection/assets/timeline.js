"use strict";
// The timeline of a block: lanes of spans. A span: [lane, row, start, end, kind, line, text, stage, read]; stage and read are -1 for none.
const data = JSON.parse(document.getElementById("data").textContent);
const info = document.getElementById("info");
const [LANE, ROW, START, END, KIND, LINE, TEXT, STAGE, READ] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
const HEIGHT = 14, TOP = 18;
let pinned = false, scale = 1;

function make(tag, attributes, text) {
  const svg = ["svg", "rect", "line", "text", "g"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}
const kindOf = (span) => data.kinds[span[KIND]];
const hazardsAt = (line) => data.hazards.flatMap((own, number) => (line && (own.line === line || own.other === line) ? [number] : []));

// --- drawing

const first = [];
let height = TOP;
data.lanes.forEach((lane, number) => { first[number] = height; height += lane.rows * HEIGHT + 4; });

const main = document.getElementById("views");
const legend = make("div", { class: "legend" });
const used = [...new Set(data.spans.map((span) => span[KIND]))].sort((a, b) => a - b);
for (const kind of used) {
  const item = make("span");
  const box = make("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" });
  box.append(make("rect", { width: 12, height: 12, class: `k-${data.kinds[kind]}` }));
  item.append(box, data.words[data.kinds[kind]]);
  legend.append(item);
}
const chart = make("div", { class: "chart" });
const names = make("div", { class: "names" });
names.append(make("div", { style: `height:${TOP}px` }, "event"));
data.lanes.forEach((lane) => names.append(make("div", { style: `height:${lane.rows * HEIGHT + 4}px`, title: lane.name }, lane.name)));
const time = make("div", { class: "time", id: "time" });
const svg = make("svg", { height, role: "img", "aria-label": data.title });
time.append(svg);
chart.append(names, time);

const list = make("ul", { class: "hazards", id: "hazards" });
data.hazards.forEach((own, number) => {
  const item = make("li", { "data-h": number, tabindex: "0" });
  item.append(make("strong", {}, `${own.severity}: ${own.name}`), make("div", {}, own.message));
  for (const line of [own.line, own.other]) {
    if (!line) continue;
    const row = make("div");
    row.append(make("code", {}, `line ${line}: ${data.lines[line] || ""}`));
    item.append(row);
  }
  if (own.fix) item.append(make("div", {}, own.fix));
  list.append(item);
});
main.append(legend, chart, make("h2", {}, data.hazards.length ? `Hazards (${data.hazards.length})` : "No hazards"), list);
if (data.left_out) main.append(make("p", {}, `${data.left_out} later events are left out.`));

function draw() {
  svg.textContent = "";
  const width = Math.max(1, data.ticks * scale);
  svg.setAttribute("width", width);
  let y = TOP;
  for (const lane of data.lanes) {
    svg.append(make("line", { class: "lane", x1: 0, x2: width, y1: y - 1.5, y2: y - 1.5 }));
    y += lane.rows * HEIGHT + 4;
  }
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((own) => own * scale >= 60) || 10000;
  for (let tick = 0; tick <= data.ticks; tick += step) svg.append(make("text", { x: tick * scale + 1, y: 11 }, String(tick)));
  data.spans.forEach((span, number) => {
    const kind = kindOf(span);
    const mark = kind === "signal" && data.lanes[span[LANE]].barrier;
    const shown = make("rect", {
      class: `s k-${kind}${kind === "phase" && span[STAGE] > 0 ? " odd" : ""}${hazardsAt(span[LINE]).length ? " hazard" : ""}`,
      x: span[START] * scale, y: first[span[LANE]] + span[ROW] * HEIGHT + 1,
      width: mark ? 2 : Math.max(2, (span[END] - span[START]) * scale), height: HEIGHT - 2, "data-s": number, tabindex: "-1",
    });
    svg.append(shown);
    if (span[STAGE] >= 0 && kind === "work" && (span[END] - span[START]) * scale >= 12)
      svg.append(make("text", { class: "stage", x: span[START] * scale + 3, y: first[span[LANE]] + span[ROW] * HEIGHT + 11 }, String(span[STAGE])));
    if (kind === "work" && span[READ] >= 0 && span[READ] < span[END]) {
      const x = span[READ] * scale;
      svg.append(make("rect", { class: "unread", x, y: first[span[LANE]] + span[ROW] * HEIGHT + 1, width: span[END] * scale - x, height: 3 }));
    }
  });
}
const rectOf = (number) => svg.querySelector(`[data-s="${number}"]`);
function zoom(factor) {
  const middle = (time.scrollLeft + time.clientWidth / 2) / scale;
  const fit = (time.clientWidth - 2) / Math.max(1, data.ticks);
  scale = Math.min(Math.max(60, 4 * fit), Math.max(fit, scale * factor));
  draw();
  time.scrollLeft = middle * scale - time.clientWidth / 2;
}

// --- what is pointed at

function clear() {
  for (const own of document.querySelectorAll(".lit, .fed")) own.classList.remove("lit", "fed");
  info.textContent = data.hint;
}
function mark(line, name) {
  data.spans.forEach((span, number) => { if (line && span[LINE] === line) rectOf(number).classList.add(name); });
}
function showSpan(number) {
  clear();
  const span = data.spans[number];
  const stage = kindOf(span) === "work" && span[STAGE] >= 0 ? `, stage ${data.stages[span[STAGE]]}` : "";
  const when = span[END] > span[START] ? `${span[START]} to ${span[END]}` : `${span[START]}`;
  const said = [`${data.lanes[span[LANE]].name}: ${data.words[kindOf(span)]}, ${when}${stage}: ${span[TEXT] < 0 ? "" : data.texts[span[TEXT]]}`];
  if (span[LINE]) said.push(`line ${span[LINE]}: ${data.lines[span[LINE]] || ""}`);
  const wrong = hazardsAt(span[LINE]);
  if (wrong.length) said.push(`${data.hazards[wrong[0]].name}: ${data.hazards[wrong[0]].message}${wrong.length > 1 ? ` (and ${wrong.length - 1} more)` : ""}`);
  for (const own of wrong) {
    mark(data.hazards[own].line, "lit");
    mark(data.hazards[own].other, "fed");
    list.querySelector(`[data-h="${own}"]`).classList.add("lit");
  }
  info.textContent = said.join("\n");
  rectOf(number).classList.add("lit");
}
function showHazard(number, scroll) {
  clear();
  const own = data.hazards[number];
  mark(own.line, "lit");
  mark(own.other, "fed");
  list.querySelector(`[data-h="${number}"]`).classList.add("lit");
  info.textContent = `${own.name}: ${own.message}`;
  const at = svg.querySelector(".s.lit");
  if (at && scroll) time.scrollLeft = at.x.baseVal.value - time.clientWidth / 2;
}
function at(node) {
  const own = node.closest && node.closest("[data-s], [data-h]");
  if (!own) return null;
  return own.dataset.s !== undefined ? () => showSpan(+own.dataset.s) : () => showHazard(+own.dataset.h, true);
}
main.addEventListener("pointerover", (event) => { const show = at(event.target); if (show && !pinned) show(); });
main.addEventListener("click", (event) => { const show = at(event.target); pinned = Boolean(show); if (show) show(); else clear(); });
main.addEventListener("focusin", (event) => { const show = at(event.target); if (show && !pinned) show(); });

function focusSpan(number) {
  pinned = false;
  const shown = rectOf(number);
  shown.focus({ preventScroll: true });
  time.scrollLeft = shown.x.baseVal.value - time.clientWidth / 2;
  showSpan(number);
}
document.addEventListener("keydown", (event) => {
  if (event.target.id === "search") return;
  if (event.key === "/") { event.preventDefault(); document.getElementById("search").focus(); return; }
  if (event.key === "+" || event.key === "-") { zoom(event.key === "+" ? 1.5 : 1 / 1.5); return; }
  if (event.key === "Escape") { pinned = false; clear(); document.activeElement.blur(); return; }
  const node = document.activeElement;
  if (event.key === "Enter" && at(node)) { pinned = true; at(node)(); return; }
  if (!node.dataset || node.dataset.s === undefined || !event.key.startsWith("Arrow")) return;
  event.preventDefault();
  const own = data.spans[+node.dataset.s];
  const order = (span) => span[START] * 64 + span[ROW];
  const along = event.key === "ArrowLeft" || event.key === "ArrowRight";
  const sign = event.key === "ArrowRight" || event.key === "ArrowDown" ? 1 : -1;
  let best = -1;
  data.spans.forEach((span, number) => {
    if (number === +node.dataset.s) return;
    if (along ? span[LANE] !== own[LANE] || sign * (order(span) - order(own)) <= 0 : span[LANE] !== own[LANE] + sign) return;
    const far = (other) => Math.abs(along ? order(other) - order(own) : other[START] - own[START]);
    if (best < 0 || far(span) < far(data.spans[best])) best = number;
  });
  if (best >= 0) focusSpan(best);
});

function find(text) {
  const words = text.trim().toLowerCase();
  const line = words.match(/^(?:line\s*)?(\d+)$/);
  const fits = (span) => line ? span[LINE] === +line[1]
    : data.lanes[span[LANE]].name.toLowerCase().includes(words) || (span[TEXT] >= 0 && data.texts[span[TEXT]].toLowerCase().includes(words));
  const found = words ? data.spans.findIndex(fits) : -1;
  if (found < 0) { clear(); info.textContent = `nothing is called "${text}"; ${data.forms}`; } else focusSpan(found);
}
const search = document.getElementById("search");
search.placeholder = data.forms;
search.addEventListener("keydown", (event) => { if (event.key === "Enter") find(search.value); });
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
const tools = document.querySelector(".tools");
for (const [word, factor, said] of [["−", 1 / 1.5, "Less detail"], ["+", 1.5, "More detail"]]) {
  const button = make("button", { type: "button", title: said, "aria-label": said }, word);
  button.addEventListener("click", () => zoom(factor));
  tools.append(button);
}

// --- facts

for (const part of data.facts) {
  const section = document.getElementById("facts");
  const table = make("table");
  for (const [name, value] of part.rows) {
    const row = make("tr");
    row.append(make("th", {}, name), make("td", {}, value));
    table.append(row);
  }
  section.append(make("h2", {}, part.title), table);
}
document.getElementById("title").textContent = data.title;
clear();
scale = Math.max((time.clientWidth - 2) / Math.max(1, data.ticks), 2.5);
draw();
document.documentElement.dataset.ready = "yes";
