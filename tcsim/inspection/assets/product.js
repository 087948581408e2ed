"use strict";
// A product as people draw it: A left, B above, D in the corner, and below them where the elements lie.
// An element's place is what its row and its column add; the swizzle comes after.
const data = JSON.parse(document.getElementById("data").textContent);
const info = document.getElementById("info");
const operands = new Map(data.operands.map((one) => [one.name, one]));
const [A, B, D] = ["a", "b", "d"].map((name) => operands.get(name));
const depth = B.rows, kept = data.kept;
const extras = data.extras || [];
for (const one of extras) operands.set(one.name, one);
let chosen = null, pinned = false;

const hex = (number) => "0x" + number.toString(16);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const tint = (number) => `hsl(${(number * 45 + Math.floor(number / 8) * 17) % 360} ${colour("--s")} ${colour("--l")})`;

function make(tag, attributes, text) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// --- places

const sum = (at, own, row, column) => (at.all ? at.all[row * own.columns + column] : at.row[row] + at.column[column]);

function swizzled(home, bit) {
  const [bits, base, shift] = home.swizzle;
  const byte = Math.floor(bit / 8);
  const moved = byte ^ (Math.floor(byte / 2 ** shift) & (((1 << bits) - 1) << base));
  return moved * 8 + (bit % 8);
}

function place(own, home, row, column) {
  const at = sum(home.at, own, row, column);
  if (home.kind === "registers") {
    const lane = Math.floor(at / home.values), value = at % home.values;
    const register = Math.floor(value / home.slots), low = (value % home.slots) * home.bits + home.shift;
    return { lane, value, register, text: `lane ${lane} ${own.name}${home.only ? "" : register}[${low + home.width - 1}:${low}]` };
  }
  if (home.kind === "shared") {
    const bit = swizzled(home, at), byte = Math.floor(bit / 8), plain = Math.floor(at / 8);
    const lane = home.ldmatrix ? sum(home.ldmatrix, own, row, column) : undefined;
    const cta = home.rowsOfCta ? Math.floor((own.name === "b" ? column : row) / home.rowsOfCta) : undefined;
    return {
      bit, byte, plain, lane, cta, bank: Math.floor(byte / 4) % 32,
      text: `byte ${hex(byte)}` + (home.bits < 8 ? `.${bit % 8}` : "") + `, bank ${Math.floor(byte / 4) % 32}` + (byte !== plain ? `, unswizzled ${hex(plain)}` : "") + (cta === undefined ? "" : ` of CTA ${cta}`),
    };
  }
  const lane = Math.floor(at / 65536), cell = at % 65536, cta = sum(home.cta, own, row, column);
  const low = sum(home.low, own, row, column);
  return { lane, cell, cta, text: `Tensor Memory lane ${lane}, column ${cell}` + (home.bits < 32 ? `[${low + home.bits - 1}:${low}]` : "") + (home.ctas > 1 ? ` of CTA ${cta}` : "") };
}

function ranges(numbers) {
  const sorted = [...new Set(numbers)].sort((x, y) => x - y);
  const parts = [];
  for (let i = 0; i < sorted.length; ) {
    let j = i;
    while (j + 1 < sorted.length && sorted[j + 1] === sorted[j] + 1) j++;
    parts.push(i === j ? `${sorted[i]}` : `${sorted[i]}-${sorted[j]}`);
    i = j + 1;
  }
  return parts.slice(0, 12).join(", ") + (parts.length > 12 ? ", ..." : "");
}

const label = (own) => (own.name.length > 1 ? own.name : own.name.toUpperCase());

// Which k an element is about, as [first, last]; of D all of them.
function range(own, row, column) {
  if (own === D) return [0, depth - 1];
  const along = own === A || own.of === "a" ? column : row;
  if (own.span) return [along * own.span, (along + 1) * own.span - 1];
  const k = own === A && kept ? kept[row][column] : along;
  return [k, k];
}

// Whether two elements of different operands meet: in a row of A, a column of B, and along K.
function meet(one, two) {
  const [own, row, column] = one, [other, otherRow, otherColumn] = two;
  const ofRow = (o) => o === A || o === D || o.of === "a", ofColumn = (o) => o === B || o === D || o.of === "b";
  if (ofRow(own) && ofRow(other) && row !== otherRow) return false;
  if (ofColumn(own) && ofColumn(other) && column !== otherColumn) return false;
  const [x, y] = [range(...one), range(...two)];
  if (x[0] > y[1] || y[0] > x[1]) return false;
  // a row of D takes of its column of B what the row's metadata keeps
  if (kept && own === D && other === B) return kept[row].includes(otherRow);
  return !(kept && own === B && other === D) || kept[otherRow].includes(row);
}

function meeting(own) {
  const found = [];
  for (let row = 0; row < own.rows; row++)
    for (let column = 0; column < own.columns; column++) if (meet(chosen, [own, row, column])) found.push([row, column]);
  return found;
}

// What holds a whole row of A or column of B.
function line(own, home, cells) {
  const places = cells.map(([row, column]) => place(own, home, row, column));
  if (home.kind === "registers") return `lanes ${ranges(places.map((p) => p.lane))}, registers ${ranges(places.map((p) => p.register)).replace(/\d+/g, (n) => own.name + n)}`;
  if (home.kind === "tmem") return `Tensor Memory lanes ${ranges(places.map((p) => p.lane))}, columns ${ranges(places.map((p) => p.cell))}`;
  const chunks = [...new Set(places.map((p) => Math.floor(p.byte / 16) * 16))];
  const lanes = home.ldmatrix ? `; ldmatrix addresses of lanes ${ranges(places.map((p) => p.lane))}` : "";
  return `16-byte chunks ${chunks.slice(0, 8).map(hex).join(", ")}${chunks.length > 8 ? ", ..." : ""}; banks ${ranges(places.map((p) => p.bank))}${lanes}`;
}

// --- drawing

class Board {
  constructor(own, side) {
    this.own = own;
    this.side = side;
    this.figure = make("figure", { class: own.name });
    this.figure.append(make("figcaption", {}, `${label(own)}: ${own.rows} x ${own.columns} ${own.format}` + (own.note ? `; ${own.note}` : "")));
    this.canvas = make("canvas", { tabindex: "0", role: "img", id: `matrix-${own.name}`, "aria-label": `matrix ${own.name}; arrow keys move, Enter pins` });
    this.figure.append(this.canvas);
    this.scale = Math.max(1, window.devicePixelRatio || 1);
    this.canvas.width = Math.ceil((own.columns * side + 1) * this.scale);
    this.canvas.height = Math.ceil((own.rows * side + 1) * this.scale);
    this.canvas.style.width = `${own.columns * side + 1}px`;
    this.canvas.style.height = `${own.rows * side + 1}px`;
    this.canvas.addEventListener("pointermove", (event) => pinned || this.point(event));
    this.canvas.addEventListener("click", (event) => { pinned = true; this.point(event); });
    this.canvas.addEventListener("pointerleave", () => pinned || choose(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.paint();
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / this.side), column = Math.floor((event.clientX - box.left) / this.side);
    if (row >= 0 && column >= 0 && row < this.own.rows && column < this.own.columns) choose([this.own, row, column]);
  }

  key(event) {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Enter") pinned = true;
    if (!move) return;
    event.preventDefault();
    const [row, column] = chosen && chosen[0] === this.own ? chosen.slice(1) : [0, 0];
    const next = [row + move[0], column + move[1]];
    pinned = true;
    if (next[0] >= 0 && next[1] >= 0 && next[0] < this.own.rows && next[1] < this.own.columns) choose([this.own, ...next]);
  }

  colourOf(row, column) {
    const home = this.own.homes[0], p = place(this.own, home, row, column);
    if (home.kind === "registers") return p.lane;
    if (home.kind === "tmem") return Math.floor(p.lane / 32) + 4 * p.cta;
    return Math.floor(p.byte / 16) % 8;
  }

  paint() {
    const { own, side } = this;
    const base = make("canvas");
    [base.width, base.height] = [this.canvas.width, this.canvas.height];
    const pen = base.getContext("2d");
    pen.scale(this.scale, this.scale);
    const gap = side > 5 ? 1 : 0;
    for (let row = 0; row < own.rows; row++)
      for (let column = 0; column < own.columns; column++) {
        pen.fillStyle = tint(this.colourOf(row, column));
        pen.fillRect(column * side, row * side, side - gap, side - gap);
      }
    if (side >= 15) {
      pen.fillStyle = colour("--ink");
      pen.font = `${Math.floor(side * 0.5)}px ui-monospace, monospace`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      for (let row = 0; row < own.rows; row++)
        for (let column = 0; column < own.columns; column++) pen.fillText(this.colourOf(row, column), (column + 0.45) * side, (row + 0.5) * side);
    }
    pen.strokeStyle = colour("--ink");
    const core = own.homes[0].core;
    if (core && side * core[0] > 6) {
      pen.globalAlpha = 0.25;
      for (let row = core[0]; row < own.rows; row += core[0]) this.rule(pen, 0, row, own.columns, row);
      for (let column = core[1]; column < own.columns; column += core[1]) this.rule(pen, column, 0, column, own.rows);
    }
    pen.globalAlpha = 1;
    for (let k = data.step; k < depth; k += data.step) {
      if (own === A && !kept) this.rule(pen, k, 0, k, own.rows);
      if (own === B) this.rule(pen, 0, k, own.columns, k);
    }
    this.base = base;
    this.light();
  }

  rule(pen, x0, y0, x1, y1) {
    const { side } = this;
    pen.beginPath();
    pen.moveTo(x0 * side - 0.5, y0 * side - 0.5);
    pen.lineTo(x1 * side - 0.5, y1 * side - 0.5);
    pen.stroke();
  }

  light() {
    const pen = this.canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.drawImage(this.base, 0, 0);
    pen.scale(this.scale, this.scale);
    this.arrows(pen);
    if (!chosen) return;
    const [own, row, column] = chosen;
    const box = (c, r, w, h, name) => {
      pen.strokeStyle = colour(name);
      pen.lineWidth = 2;
      pen.strokeRect(c * this.side, r * this.side, w * this.side, h * this.side);
    };
    if (this.own === own) box(column, row, 1, 1, "--lit");
    if (this.own !== own && (kept || extras.length)) {
      for (const [r, c] of meeting(this.own)) box(c, r, 1, 1, "--fed");
      return;
    }
    if (this.own === A && own === D) box(0, row, A.columns, 1, "--fed");
    if (this.own === B && own === D) box(column, 0, 1, B.rows, "--fed");
    if (this.own === D && own === A) box(0, row, D.columns, 1, "--fed");
    if (this.own === D && own === B) box(column, 0, 1, D.rows, "--fed");
    if (this.own === B && own === A) box(0, column, B.columns, 1, "--fed");
    if (this.own === A && own === B) box(row, 0, 1, A.rows, "--fed");
  }

  arrows(pen) {
    const { side } = this;
    for (const { name, to } of this.own.homes[0].arrows || []) {
      const x = side * (to[1] + 0.5), y = side * (to[0] + 0.5), from = side * 0.5;
      pen.strokeStyle = pen.fillStyle = colour("--ink");
      pen.lineWidth = 2;
      pen.beginPath();
      pen.moveTo(from, from);
      pen.lineTo(x, y);
      pen.stroke();
      const angle = Math.atan2(y - from, x - from);
      pen.beginPath();
      pen.moveTo(x, y);
      for (const turn of [2.7, -2.7]) pen.lineTo(x + 8 * Math.cos(angle + turn), y + 8 * Math.sin(angle + turn));
      pen.fill();
      pen.font = "bold 11px ui-monospace, monospace";
      pen.textAlign = "left";
      pen.textBaseline = "top";
      const wide = pen.measureText(name).width;
      const left = Math.max(0, Math.min(x + 6, this.own.columns * side - wide - 4)), top = Math.max(0, Math.min(y + 4, this.own.rows * side - 14));
      pen.fillStyle = colour("--ground");
      pen.fillRect(left - 1, top, wide + 3, 13);
      pen.fillStyle = colour("--ink");
      pen.fillText(name, left, top + 1);
    }
  }
}

// Where a matrix lies: lanes x registers, lines of 128 bytes, or lanes x columns.
class Home {
  constructor(own, home) {
    this.own = own;
    this.home = home;
    const shape = this.shape();
    this.figure = make("figure");
    this.figure.append(make("figcaption", {}, shape.title));
    const box = make("div", { class: "box" });
    this.canvas = make("canvas", { role: "img", id: `${home.kind}-${own.name}`, "aria-label": shape.title });
    [this.wide, this.high] = [shape.wide, shape.high];
    [this.columns, this.rows] = [shape.columns, shape.rows];
    this.canvas.width = this.columns * this.wide;
    this.canvas.height = this.rows * this.high;
    box.append(this.canvas);
    this.box = box;
    this.figure.append(box);
    this.cells = new Map();
    for (let row = 0; row < own.rows; row++)
      for (let column = 0; column < own.columns; column++) {
        const cell = this.cellOf(row, column);
        if (!this.cells.has(cell)) this.cells.set(cell, [row, column]);
      }
    this.canvas.addEventListener("pointermove", (event) => pinned || this.point(event));
    this.canvas.addEventListener("click", (event) => { pinned = true; this.point(event); });
    this.light();
  }

  shape() {
    const { own, home } = this, name = label(own);
    if (home.kind === "registers") return { columns: home.values, rows: home.lanes, wide: home.values > 32 ? 6 : 16, high: 7, title: `${name} in registers: a line is a lane, ${home.slots > 1 ? `${home.slots} columns a register` : "a column a register"}` };
    if (home.kind === "tmem") return { columns: home.width, rows: 128 * home.ctas, wide: home.width > 128 ? 2 : 4, high: 3, title: `${name} in Tensor Memory (${home.name}): a line is a lane, a column a column` };
    const mode = home.mode ? `, ${home.major}-major, swizzle ${home.mode}, LBO ${home.lbo}, SBO ${home.sbo} bytes` : ", as ldmatrix reads it";
    return { columns: 8, rows: Math.ceil(home.bytes / 128), wide: 40, high: 9, title: `${name} in shared memory from ${hex(home.start)}: a line is 128 bytes, a column 16 (4 banks)${mode}` };
  }

  cellOf(row, column) {
    const { home } = this, p = place(this.own, home, row, column);
    if (home.kind === "registers") return p.lane * this.columns + p.value;
    if (home.kind === "tmem") return (p.lane + 128 * p.cta) * this.columns + p.cell;
    return Math.floor((p.byte - home.start) / 16);
  }

  point(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const cell = Math.floor((event.clientY - bounds.top) / this.high) * this.columns + Math.floor((event.clientX - bounds.left) / this.wide);
    const found = this.cells.get(cell);
    if (found) choose([this.own, ...found]);
  }

  light() {
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    for (const [cell, [row, column]] of this.cells) {
      const number = this.home.kind === "registers" ? Math.floor(cell / this.columns) : this.home.kind === "tmem" ? Math.floor(cell / this.columns / 32) : Math.floor(place(this.own, this.home, row, column).plain / 16);
      pen.fillStyle = tint(number % 8);
      pen.fillRect((cell % this.columns) * this.wide, Math.floor(cell / this.columns) * this.high, this.wide - (this.wide > 3), this.high - 1);
    }
    let first = null;
    for (const [row, column] of lit(this.own)) {
      const cell = this.cellOf(row, column);
      first = first === null ? cell : first;
      pen.fillStyle = colour(chosen[0] === this.own ? "--lit" : "--fed");
      pen.fillRect((cell % this.columns) * this.wide, Math.floor(cell / this.columns) * this.high, Math.max(2, this.wide - 1), Math.max(2, this.high - 1));
    }
    if (first !== null) this.box.scrollTop = Math.max(0, Math.floor(first / this.columns) * this.high - this.box.clientHeight / 2);
  }
}

// The elements of an operand that are lit.
function lit(own) {
  if (!chosen) return [];
  const [from, row, column] = chosen;
  if (own === from) return [[row, column]];
  if (kept || extras.length) return from === D || own.span || from.span || kept ? meeting(own) : [];
  if (from === D) return [...Array(depth).keys()].map((k) => (own === A ? [row, k] : [k, column]));
  if (own === D) return from === A ? [...Array(D.columns).keys()].map((n) => [row, n]) : [...Array(D.rows).keys()].map((m) => [m, column]);
  return [];
}

// --- what is chosen

const boards = [], homes = [];
const said = make("table", { id: "said" });

function choose(what) {
  chosen = what;
  for (const one of [...boards, ...homes]) one.light();
  said.replaceChildren();
  if (!what) {
    info.textContent = data.hint;
    return;
  }
  const [own, row, column] = what;
  const tell = (name, text) => {
    const line = make("tr");
    line.append(make("th", { scope: "row" }, name), make("td", {}, text));
    said.append(line);
  };
  const name = (o, r, c) => `${label(o)}(${r},${c})`;
  info.textContent = `${name(own, row, column)} = ` + own.homes.map((home) => place(own, home, row, column).text).join("; ");
  for (const home of own.homes) {
    const p = place(own, home, row, column);
    tell(name(own, row, column), p.text + (home.ldmatrix ? `; ldmatrix: the address of lane ${p.lane}` : ""));
    if (home.core) tell("core matrix", `${Math.floor(row / home.core[0])}, ${Math.floor(column / home.core[1])} of ${home.core[0]} x ${home.core[1]} elements; LBO ${home.lbo}, SBO ${home.sbo} bytes`);
  }
  if (kept && (own === A || own.name === "metadata")) {
    const group = own === A ? Math.floor(kept[row][column] / operands.get("metadata").span) : column, bits = data.groups[row][group];
    const size = operands.get("metadata").span, here = kept[row].filter((k) => Math.floor(k / size) === group);
    const text = `0b${bits.toString(2).padStart(4, "0")}: of k ${group * size}-${group * size + size - 1} those kept are ${here.join(", ")}`;
    const home = place(operands.get("metadata"), operands.get("metadata").homes[0], row, group);
    tell("example metadata", own === A ? `${text}; in ${home.text}` : text);
    if (own === A) tell("k", `${kept[row][column]}: it meets row ${kept[row][column]} of B`);
  }
  if (kept && own === D) {
    const part = operands.get("metadata"), home = part.homes[0], own = meeting(part);
    const where = home.kind === "tmem" ? line(part, home, own) : `lanes ${ranges(own.map(([r, c]) => place(part, home, r, c).lane))}`;
    tell(`metadata of row ${row}`, `${where}; keeps k ${ranges(kept[row])} in the example`);
  }
  for (const other of extras.filter((one) => one !== own && one.span && one.name !== "metadata")) {
    const found = meeting(other);
    if (found.length) tell(other.name, found.slice(0, 4).map(([r, c]) => `${name(other, r, c)} in ${place(other, other.homes[0], r, c).text}`).join("; ") + (found.length > 4 ? `; ... ${found.length} in all` : ""));
  }
  if (own.span) {
    const [first, last] = range(own, row, column);
    tell("k", `${first}-${last} of ${own.of === "a" ? `row ${row} of A` : `column ${column} of B`}`);
  } else if (own !== D) {
    const [k] = range(own, row, column), step = Math.floor(k / data.step);
    tell("K step", `${step} of ${Math.ceil(depth / data.step)}: k ${step * data.step}-${Math.min(depth, (step + 1) * data.step) - 1}` + (data.steps[step] ? `, descriptor ${data.steps[step][own === A ? 0 : 1]}` : ""));
  } else {
    for (const other of [A, B])
      for (const home of other.homes) tell(other === A ? `row ${row} of A` : `column ${column} of B`, line(other, home, lit(other)));
    if (data.steps.length) tell("K steps", data.steps.map(([a, b], n) => `${n}: ${a}, ${b}`).join("\n"));
  }
}

// --- the page

function build() {
  const wide = document.documentElement.clientWidth - 44;
  const high = Math.max(420, window.innerHeight - 200);
  const side = Math.max(2, Math.min(24, Math.floor(wide / (A.columns + D.columns)), Math.floor(high / (depth + D.rows)) || 2));
  const views = document.getElementById("views");
  views.replaceChildren();
  boards.length = homes.length = 0;
  const product = make("div", { class: "product" });
  boards.push(...[A, B, D, ...extras].map((own) => new Board(own, side)));
  const kinds = { registers: side < 15 ? "Colours: the lane." : "Colours and numbers: the lane.", shared: "Colours: the chunk of 16 bytes, by banks.", tmem: "Colours: the lanes of one warp." };
  const legend = [...new Set([A, B, D].map((own) => kinds[own.homes[0].kind]))];
  const corner = make("div", { class: "corner" }, legend.join(" ") + (depth > data.step ? ` Lines: K steps of ${data.step}.` : ""));
  const inside = side * A.columns >= 260; // the answer fits where nobody draws anything
  corner.style.width = `${Math.max(side * A.columns, 60)}px`;
  corner.style.maxHeight = `${side * depth + 18}px`;
  const above = inside ? [] : boards.slice(3).filter(({ own }) => own.of === "a" && own.rows + 4 < depth); // of A, and there is room
  corner.prepend(...(inside ? [said] : above.map((board) => board.figure)));
  const beside = boards.slice(3).filter(({ own }) => own.of === "a" && own.rows === A.rows && own.rows > 32); // row by row
  const rows = make("div", { class: "rows" });
  rows.append(...beside.map((board) => board.figure), boards[0].figure);
  if (beside.length) [corner.style.width, corner.style.minWidth] = ["0", "100%"]; // as wide as these are
  product.append(corner, boards[1].figure, rows, boards[2].figure);
  const scroll = make("div", { class: "scroll" });
  scroll.append(product);
  const more = make("div", { class: "homes extras" });
  more.append(...boards.slice(3).filter((board) => !above.includes(board) && !beside.includes(board)).map((board) => board.figure));
  scroll.append(more);
  const where = make("div", { class: "homes" });
  for (const own of operands.values()) for (const home of own.homes) homes.push(new Home(own, home));
  where.append(...homes.map((home) => home.figure));
  const left = make("div", { class: "left" }), right = make("div", { class: "right" });
  left.append(scroll, ...(inside ? [] : [said]));
  right.append(make("h2", {}, "Where the elements lie"), where);
  const both = make("div", { class: "both" });
  both.append(left, right);
  views.append(both);
  choose(chosen);
}

function find(text) {
  const found = text.trim().toLowerCase().match(/^(?:([abd]|scale_[ab]|metadata)\s*[[(]?\s*)?(\d+)\s*,\s*(\d+)[\])]?$/);
  const own = found && operands.get(found[1] || "d");
  const [row, column] = found ? [Number(found[2]), Number(found[3])] : [];
  return own && row < own.rows && column < own.columns ? [own, row, column] : null;
}

const search = document.getElementById("search");
search.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  const found = find(search.value);
  pinned = Boolean(found);
  choose(found);
  if (!found) info.textContent = `nothing is called "${search.value.trim()}"; ${data.forms}`;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== search) {
    event.preventDefault();
    search.focus();
  }
  if (event.key === "Escape") {
    pinned = false;
    choose(null);
  }
});
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  build();
});
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== width) build();
  width = window.innerWidth;
});

document.getElementById("title").textContent = data.title;
search.placeholder = data.forms;
build();
document.documentElement.dataset.ready = "yes";
