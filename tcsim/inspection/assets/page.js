"use strict";
// One page for fragments (matrix <-> registers of lanes) and for tiles in memory (matrix <-> shared bytes).
// A view holds boards; a board holds cells; every cell says which elements of the view's matrix it shows.
const data = JSON.parse(document.getElementById("data").textContent);
const info = document.getElementById("info");
const byId = new Map(data.views.map((view) => [view.id, view]));
let pinned = false;

const flat = (x) => (Array.isArray(x) ? x.flatMap(flat) : [x]);

// A CuTe layout: the index at a linear coordinate, first mode fastest.
function indexOf(layout, coordinate) {
  const strides = flat(layout.stride);
  let index = 0;
  flat(layout.shape).forEach((extent, mode) => {
    index += (coordinate % extent) * strides[mode];
    coordinate = Math.floor(coordinate / extent);
  });
  return index;
}
const sizeOf = (layout) => flat(layout.shape).reduce((x, y) => x * y, 1);

function make(tag, attributes, text) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

const hue = (number) => (number * 45 + Math.floor(number / 8) * 17) % 360;
const hex = (number) => "0x" + number.toString(16);

// --- boards

// rows, columns: labels; cellAt(row, column) -> {elements, label, colour} or null
function board(view, name, title, rows, columns, cellAt) {
  const holder = make("div");
  holder.append(make("h3", {}, title));
  const outer = make("div", { class: "board" });
  const grid = make("div", { class: "grid", role: "grid", "aria-label": title, id: `${view.id}-${name}` });
  const html = ['<div class="head top side"></div>'];
  for (const label of columns) html.push(`<div class="head top">${label}</div>`);
  const cells = [];
  let longest = Math.max(2, ...columns.map((label) => String(label).length));
  rows.forEach((label, row) => {
    html.push(`<div class="head side">${label}</div>`);
    columns.forEach((_, column) => {
      const cell = cellAt(row, column);
      const place = cells.length;
      cells.push(cell ? cell.elements : []);
      if (cell) longest = Math.max(longest, cell.label.length);
      html.push(
        cell
          ? `<div class="c" role="gridcell" tabindex="-1" data-p="${place}" style="--h:${hue(cell.colour)}">${cell.label}</div>`
          : `<div class="c none" role="gridcell" tabindex="-1" data-p="${place}">.</div>`,
      );
    });
  });
  const side = Math.max(2, ...rows.map((label) => String(label).length));
  grid.style.gridTemplateColumns = `${side + 1.5}ch repeat(${columns.length}, ${longest + 1.5}ch)`; // fixed: measuring is slow
  grid.innerHTML = html.join("");
  const nodes = [...grid.querySelectorAll(".c")];
  if (nodes.length) nodes[0].tabIndex = 0;
  const own = { view, name, grid, nodes, cells, width: columns.length, shows: new Map() };
  cells.forEach((elements, place) =>
    elements.forEach((element) => {
      if (!own.shows.has(element)) own.shows.set(element, []);
      own.shows.get(element).push(place);
    }),
  );
  view.boards.push(own);
  grid.addEventListener("pointerover", (event) => pinned || at(own, event.target, (place) => light(own, place)));
  grid.addEventListener("pointerleave", () => pinned || clear());
  grid.addEventListener("click", (event) => at(own, event.target, (place) => { pinned = true; light(own, place); }));
  grid.addEventListener("focusin", (event) => at(own, event.target, (place) => light(own, place)));
  grid.addEventListener("keydown", (event) => step(own, event));
  outer.append(grid);
  holder.append(outer);
  return holder;
}

function at(own, node, action) {
  const place = node.dataset ? node.dataset.p : undefined;
  if (place !== undefined) action(Number(place));
}

function step(own, event) {
  const place = own.nodes.indexOf(document.activeElement);
  const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -own.width, ArrowDown: own.width }[event.key];
  if (event.key === "Enter") pinned = true;
  if (move === undefined || place < 0) return;
  event.preventDefault();
  const column = place % own.width;
  if ((event.key === "ArrowLeft" && column === 0) || (event.key === "ArrowRight" && column === own.width - 1)) return;
  const next = own.nodes[place + move];
  if (next) focus(own, place + move);
}

function focus(own, place) {
  own.nodes.forEach((node) => (node.tabIndex = -1));
  own.nodes[place].tabIndex = 0;
  own.nodes[place].focus();
  own.nodes[place].scrollIntoView({ block: "nearest", inline: "nearest" });
}

function clear() {
  document.querySelectorAll(".lit, .fed").forEach((node) => node.classList.remove("lit", "fed"));
  info.textContent = data.hint;
}

// Mark what a cell shows on every board of its view, and what feeds it.
function light(own, place) {
  const elements = own.cells[place];
  clear();
  own.nodes[place].classList.add("lit");
  for (const element of elements) mark(own.view, element, "lit");
  for (const element of elements.slice(0, 1)) feeds(own.view, element);
  info.textContent = elements.length ? elements.map((e) => own.view.say(e)).slice(0, 4).join("   ") + (elements.length > 4 ? `   and ${elements.length - 4} more` : "") : own.view.empty(own, place);
}

function mark(view, element, kind) {
  for (const other of view.boards) for (const place of other.shows.get(element) || []) other.nodes[place].classList.add(kind);
}

// A result element is fed by a row of A and a column of B.
function feeds(view, element) {
  if (!view.fedBy) return;
  const [a, b] = view.fedBy.map((id) => byId.get(id));
  const size = view.rows * view.columns;
  const matrix = Math.floor(element / size);
  const row = Math.floor((element % size) / view.columns);
  const column = element % view.columns;
  for (let k = 0; a && k < a.columns; k++) mark(a, matrix * a.rows * a.columns + row * a.columns + k, "fed");
  for (let k = 0; b && k < b.rows; k++) mark(b, matrix * b.rows * b.columns + k * b.columns + column, "fed");
}

// --- fragments

function elementOf(view, lane, v) {
  const { rows, columns } = view;
  const index = indexOf(view.thread, lane) + indexOf(view.value, v);
  const row = view.columnFastest ? Math.floor(index / columns) : index % rows;
  const column = view.columnFastest ? index % columns : Math.floor(index / rows);
  return (view.matrix ? indexOf(view.matrix, lane) : 0) * rows * columns + row * columns + column;
}

const words = (text) => new Uint32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);

function fragment(view) {
  const { thread, value, rows, columns, bits } = view;
  const lanes = sizeOf(thread), values = sizeOf(value), size = rows * columns;
  const given = view.elements ? words(view.elements) : null;
  const places = new Map();
  const held = [];
  for (let lane = 0; lane < lanes; lane++) {
    for (let v = 0; v < values; v++) {
      const element = given ? given[lane * values + v] : elementOf(view, lane, v);
      held.push(element);
      if (!places.has(element)) places.set(element, []);
      places.get(element).push(lane * values + v);
    }
  }
  const slots = Math.max(1, 32 / bits);
  const bit = (v) => (bits >= 32 ? [bits - 1, 0] : [(v % slots) * bits + view.shift + view.width - 1, (v % slots) * bits + view.shift]);
  const register = (v) => (bits >= 32 ? v : Math.floor(v / slots));
  const short = (p) => `${Math.floor(p / values)}:${register(p % values)}` + (slots > 1 ? `.${(p % values) % slots}` : "");
  const name = (e) => {
    const matrix = Math.floor(e / size), row = Math.floor((e % size) / columns);
    return `${view.name}[${row},${e % columns}]` + (view.matrices > 1 ? ` of matrix ${matrix}` : "");
  };
  view.say = (e) => `${name(e)} = ` + (places.get(e) || []).map((p) => `lane ${Math.floor(p / values)} ${view.name}${register(p % values)}[${bit(p % values).join(":")}]`).join(", ");
  view.empty = () => "";
  view.places = places;
  view.values = values;
  view.register = register;
  const section = make("section", { id: `view-${view.id}` });
  section.append(make("h2", {}, view.title));
  const pair = make("div", { class: "pair" });
  const labels = [];
  for (let m = 0; m < view.matrices; m++) for (let r = 0; r < rows; r++) labels.push(view.matrices > 1 ? `${m}: ${r}` : `${r}`);
  pair.append(
    board(view, "matrix", "lane:register.slot of each element", labels, [...Array(columns).keys()], (row, column) => {
      const element = row * columns + column;
      const first = (places.get(element) || [0])[0];
      return { elements: [element], label: short(first), colour: Math.floor(first / values) };
    }),
  );
  const heads = [];
  for (let v = 0; v < values; v++) heads.push(`${view.name}${register(v)}` + (slots > 1 ? `[${bit(v).join(":")}]` : ""));
  pair.append(
    board(view, "registers", "row,column in each register of each lane", [...Array(lanes).keys()].map((l) => `lane ${l}`), heads, (lane, v) => {
      const element = held[lane * values + v];
      const label = `${Math.floor((element % size) / columns)},${element % columns}`;
      return { elements: [element], label: view.matrices > 1 ? `${Math.floor(element / size)}: ${label}` : label, colour: lane };
    }),
  );
  section.append(pair);
  return section;
}

// --- tiles in memory

function memory(view) {
  const address = words(view.addresses);
  const { rows, columns } = view;
  const chunkOf = (e) => Math.floor(address[e] / 16);
  const chunks = new Map();
  let low = Infinity, high = 0;
  for (let e = 0; e < address.length; e++) {
    const chunk = chunkOf(e);
    if (!chunks.has(chunk)) chunks.set(chunk, []);
    chunks.get(chunk).push(e);
    low = Math.min(low, chunk);
    high = Math.max(high, chunk);
  }
  low = Math.floor(low / 8) * 8;
  const name = (e) => `${view.name}[${Math.floor(e / columns)},${e % columns}]`;
  view.say = (e) => `${name(e)} = byte ${hex(address[e])} (${address[e]}), bank ${Math.floor(address[e] / 4) % 32}` + (view.bits < 8 ? `, bit ${((e % columns) * view.bits) % 8}` : "");
  view.empty = (own, place) => `bytes ${hex((low + place) * 16)} to ${hex((low + place) * 16 + 15)} belong to no element`;
  view.address = address;
  view.chunkPlace = (byte) => Math.floor(byte / 16) - low;
  const section = make("section", { id: `view-${view.id}` });
  section.append(make("h2", {}, view.title));
  const pair = make("div", { class: "pair memory" });
  const perChunk = Math.max(1, 128 / view.bits);
  const tint = (e) => (view.major === "K" ? Math.floor((e % columns) / perChunk) : Math.floor(Math.floor(e / columns) / perChunk));
  pair.append(
    board(view, "matrix", `byte of each element: rows run along ${view.along}, columns along K`, [...Array(rows).keys()], [...Array(columns).keys()], (row, column) => {
      const element = row * columns + column;
      return { elements: [element], label: address[element].toString(16), colour: tint(element) };
    }),
  );
  const lines = [], heads = [];
  for (let line = low; line <= high; line += 8) lines.push(hex(line * 16));
  for (let c = 0; c < 8; c++) heads.push(`banks ${c * 4}-${c * 4 + 3}`);
  pair.append(
    board(view, "memory", "row,k of the elements in each 16 bytes: 128 bytes a line", lines, heads, (line, c) => {
      const own = chunks.get(low + line * 8 + c);
      if (!own) return null;
      const first = own[0], last = own[own.length - 1];
      const [r0, k0, r1, k1] = [Math.floor(first / columns), first % columns, Math.floor(last / columns), last % columns];
      return { elements: own, label: (r0 === r1 ? `${r0}` : `${r0}-${r1}`) + "," + (k0 === k1 ? `${k0}` : `${k0}-${k1}`), colour: tint(first) };
    }),
  );
  section.append(pair);
  return section;
}

// --- searching

function find(text) {
  const word = text.trim().toLowerCase();
  let found;
  if ((found = word.match(/^(?:([a-z]+)\s*\[?\s*)?(\d+)\s*,\s*(\d+)\]?$/))) {
    const view = found[1] ? data.views.find((v) => v.name.toLowerCase() === found[1]) : data.views[0];
    const [row, column] = [Number(found[2]), Number(found[3])];
    if (view && row < view.rows && column < view.columns) return [view.boards[0], row * view.columns + column];
  } else if ((found = word.match(/^(?:lane\s*)?(\d+)\s*[:\s]\s*([a-z]+)?(\d+)$/)) || (found = word.match(/^lane\s*(\d+)$/))) {
    const view = found[2] ? data.views.find((v) => v.name.toLowerCase() === found[2]) : data.views.find((v) => v.thread);
    if (view && view.thread) {
      const lane = Number(found[1]), wanted = Number(found[3] || 0);
      for (let v = 0; v < view.values; v++) if (view.register(v) === wanted && lane < sizeOf(view.thread)) return [view.boards[1], lane * view.values + v];
    }
  } else if ((found = word.match(/^(?:byte\s*)?(0x[0-9a-f]+|\d+)$/))) {
    const view = data.views.find((v) => v.address);
    const place = view ? view.chunkPlace(Number(found[1])) : -1;
    if (view && place >= 0 && place < view.boards[1].nodes.length) return [view.boards[1], place];
  }
  return null;
}

const search = document.getElementById("search");
search.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  const found = find(search.value);
  if (!found) {
    clear();
    info.textContent = `nothing is called "${search.value.trim()}"; ${data.forms}`;
    return;
  }
  pinned = true;
  focus(found[0], found[1]);
  light(found[0], found[1]);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search) {
    event.preventDefault();
    search.focus();
  }
  if (event.key === "Escape") {
    pinned = false;
    clear();
  }
});
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

// --- the page

document.getElementById("title").textContent = data.title;
search.placeholder = data.forms;
const views = document.getElementById("views");
for (const view of data.views) {
  view.boards = [];
  views.append(view.thread ? fragment(view) : memory(view));
}
const facts = document.getElementById("facts");
for (const part of data.facts) {
  facts.append(make("h2", {}, part.title));
  const table = make("table");
  for (const [name, text] of part.rows) {
    const row = make("tr");
    row.append(make("th", { scope: "row" }, name), make("td", {}, text));
    table.append(row);
  }
  facts.append(table);
}
clear();
document.documentElement.dataset.ready = "yes";
