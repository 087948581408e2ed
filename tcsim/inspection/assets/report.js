"use strict";
// A report: its HTML comes with the data. What is marked is linked: pointing at it lights the others of its keys.
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement, views = document.getElementById("views"), info = document.getElementById("info");
const HINT = "Point at a cell.";
let pinned = false;

document.getElementById("title").textContent = data.title;
views.innerHTML = data.html;

function make(tag, attributes = {}, text = "") {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// --- pictures: squares with a letter, in one of several sizes

function range(what, place, size, whole) {
  const last = Math.min(whole, (place + 1) * size) - 1;
  return place * size === last ? `${what} ${last}` : `${what}s ${place * size}-${last}`;
}

function says(board, row, column) {
  const letter = board.rows[row][column], wrong = board.wrong[row][column];
  const count = (Math.min(board.height, (row + 1) * board.size) - row * board.size) * (Math.min(board.width, (column + 1) * board.size) - column * board.size);
  const meaning = letter === "x" ? "" : `; ${board.legend[letter]}`;
  return `${range("row", row, board.size, board.height)}, ${range("column", column, board.size, board.width)}: ${wrong} of ${count} outputs wrong${meaning}`;
}

function draw(box, boards, chosen) {
  const board = boards[chosen];
  box.replaceChildren();
  if (boards.length > 1) {
    const sizes = make("div", { class: "sizes" }, "blocks of ");
    boards.forEach((one, place) => {
      const button = make("button", { type: "button", "aria-pressed": String(place === chosen) }, `${one.size}`);
      button.addEventListener("click", () => draw(box, boards, place));
      sizes.append(button, " ");
    });
    box.append(sizes);
  }
  const across = board.rows[0].length;
  const side = Math.max(5, Math.min(26, Math.floor((root.clientWidth - 100) / across), Math.floor(640 / board.rows.length)));
  const grid = make("div", { class: "squares" });
  grid.style.setProperty("--side", `${side}px`);
  grid.style.gridTemplateColumns = `auto repeat(${across}, ${side}px)`;
  const every = Math.max(1, Math.ceil(48 / side));
  grid.append(make("b"));
  for (let column = 0; column < across; column++) grid.append(make("b", { class: "top" }, column % every ? "" : String(column * board.size)));
  board.rows.forEach((line, row) => {
    grid.append(make("b", {}, row % Math.max(1, Math.ceil(14 / side)) ? "" : String(row * board.size)));
    [...line].forEach((letter, column) => {
      const cell = make("i", { tabindex: "-1", "data-letter": letter, "data-k": `letter-${letter}`, "data-one": "" }, side < 9 ? "" : letter);
      cell.say = () => says(board, row, column);
      grid.append(cell);
    });
  });
  const legend = make("p", { class: "legend" });
  for (const [letter, text] of Object.entries(board.legend)) {
    const entry = make("span", { "data-l": `letter-${letter}`, "data-s": text });
    entry.append(make("i", { "data-letter": letter }, letter), ` ${text} `);
    legend.append(entry);
  }
  const scroll = make("div", { class: "scroll" });
  scroll.append(grid);
  box.append(scroll, legend);
}

document.querySelectorAll(".picture").forEach((box, place) => {
  const boards = data.pictures[place];
  if (boards.length) draw(box, boards, Math.max(0, boards.findIndex((one) => one.shown)));
});

// --- links

const marked = "[data-k], [data-l], [data-s]";

function keysOf(node, name) {
  return (node.dataset[name] || "").split(" ").filter(Boolean);
}

function light(node) {
  for (const old of document.querySelectorAll(".lit, .fed")) old.classList.remove("lit", "fed");
  info.textContent = node ? (node.say ? node.say() : node.dataset.s || "") : HINT;
  if (!node) return;
  const own = new Set("one" in node.dataset ? [] : keysOf(node, "k").slice(0, 1)), links = new Set(keysOf(node, "l"));
  for (const other of document.querySelectorAll("[data-k]")) {
    const keys = keysOf(other, "k");
    if (keys.some((key) => own.has(key))) other.classList.add("lit");
    else if (keys.some((key) => links.has(key))) other.classList.add("fed");
  }
  node.classList.add("lit");
}

function near(event) {
  return event.target.closest ? event.target.closest(marked) : null;
}

views.addEventListener("pointerover", (event) => {
  const node = near(event);
  if (node && !pinned) light(node);
});
views.addEventListener("click", (event) => {
  const node = near(event);
  pinned = Boolean(node);
  light(node);
  if (node) node.focus({ preventScroll: true });
});

// The next marked thing to the left, right, up or down on the screen.
function step(from, key) {
  const box = from.getBoundingClientRect(), across = key === "ArrowLeft" || key === "ArrowRight";
  const sign = key === "ArrowLeft" || key === "ArrowUp" ? -1 : 1;
  let best = null, least = Infinity;
  for (const other of views.querySelectorAll(marked)) {
    const its = other.getBoundingClientRect();
    const dx = its.left - box.left, dy = its.top - box.top;
    const along = sign * (across ? dx : dy), aside = Math.abs(across ? dy : dx);
    if (along > 1 && along + 4 * aside < least) [best, least] = [other, along + 4 * aside];
  }
  return best;
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    pinned = false;
    light(null);
  }
  const from = document.querySelector(".lit:focus") || document.activeElement;
  if (!event.key.startsWith("Arrow") || !from || !from.matches(marked)) return;
  const next = step(from, event.key);
  if (!next) return;
  event.preventDefault();
  next.setAttribute("tabindex", "-1");
  next.focus();
  pinned = true;
  light(next);
});
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
root.classList.toggle("linked", Boolean(views.querySelector(marked)));
light(null);
if (window.frameElement) window.frameElement.style.height = `${document.body.offsetHeight + 4}px`; // in a notebook: as high as it is
root.dataset.ready = "yes";
