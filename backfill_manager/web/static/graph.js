// The graph of tasks: fits its card, zooms (Ctrl and wheel, buttons, + - 0) and moves (drag, arrow keys). The server draws it; here only
// the visible part (`viewBox`) changes. Groups open and close by links, whose address is kept, so that a refresh knows them.

import { refresh } from "./live.js";

const STEP = 1.25;
const MAX_SCALE = 4; // px for one of the drawing's
const MIN_HEIGHT = 220;
const DRAG_PX = 4;
const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

let seen = null; // {x, y, scale}: what a person has chosen; null: it fits
let drag = null;
let isDragged = false; // the click that ends a drag is none

const view = () => document.getElementById("graph-view");
const svg = () => document.getElementById("graph-svg");
const size = () => ({ width: Number(svg().dataset.width), height: Number(svg().dataset.height) });

function fitted() {
  const { width, height } = size();
  const scale = Math.min(1, view().clientWidth / width, view().clientHeight / height);
  return { scale, x: (width - view().clientWidth / scale) / 2, y: (height - view().clientHeight / scale) / 2 };
}

// A graph may use seven tenths of the window, and is no higher than it needs to be, unless it is wide, so that one can zoom in.
function draw() {
  if (!view().clientWidth) return; // not shown
  const { width, height } = size();
  const needed = height * Math.min(1, view().clientWidth / width);
  const least = width > view().clientWidth ? 1.2 * MIN_HEIGHT : Math.min(height, MIN_HEIGHT);
  view().style.height = `${Math.round(Math.min(Math.max(needed, least) + 8, 0.7 * innerHeight))}px`;
  const { x, y, scale } = seen ?? fitted();
  svg().setAttribute("viewBox", `${x} ${y} ${view().clientWidth / scale} ${view().clientHeight / scale}`);
  view().classList.toggle("is-moved", seen !== null);
  document.getElementById("graph-tools").hidden = false;
  document.getElementById("graph-scale").textContent = `${Math.round(scale * 100)} %`;
}

// The point of the window (by default the middle) stays where it is.
function zoom(factor, at = { x: view().clientWidth / 2, y: view().clientHeight / 2 }) {
  const from = seen ?? fitted();
  const scale = Math.max(Math.min(fitted().scale, 1) / 2, Math.min(MAX_SCALE, from.scale * factor));
  seen = { scale, x: from.x + at.x / from.scale - at.x / scale, y: from.y + at.y / from.scale - at.y / scale };
  draw();
}

function move(right, down) {
  const from = seen ?? fitted();
  seen = { ...from, x: from.x + right / from.scale, y: from.y + down / from.scale };
  draw();
}

function fit() {
  seen = null;
  draw();
}

// Tasks (and collapsed groups) whose names hold what was typed are marked; the first is brought to the middle.
function find(center = true) {
  const typed = document.getElementById("graph-find").value.trim().toLowerCase();
  const found = [...svg().querySelectorAll(".node")].filter((node) => {
    const isFound = typed !== "" && node.id.slice("box-".length).toLowerCase().includes(typed);
    node.classList.toggle("is-found", isFound);
    return isFound;
  });
  document.getElementById("graph-found").textContent = typed ? `${found.length} found` : "";
  if (!found.length || !center) return;
  const box = found[0].querySelector("rect:not(.behind)");
  const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => Number(box.getAttribute(name)));
  const scale = Math.max(1, (seen ?? fitted()).scale);
  seen = { scale, x: x + width / 2 - view().clientWidth / scale / 2, y: y + height / 2 - view().clientHeight / scale / 2 };
  draw();
}

async function toggle(link) {
  const { group } = link.dataset;
  history.replaceState(null, "", link.getAttribute("href")); // `href` of a link in SVG is no text
  await refresh(new Set(["dag_version"]), { anew: true });
  seen = null;
  draw();
  if (group) document.getElementById(`group-${group}`)?.focus();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("#graph-tools button");
  if (button) ({ in: () => zoom(STEP), out: () => zoom(1 / STEP), fit })[button.dataset.zoom]();
  const link = event.target.closest("#graph a[data-graph]");
  if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  toggle(link);
});
document.addEventListener("click", (event) => {
  if (!isDragged || !event.target.closest("#graph-view")) return;
  isDragged = false;
  event.preventDefault();
  event.stopPropagation();
}, true);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !event.target.closest?.("#graph-view, #graph-tools button")) return;
  if (event.key === "+" || event.key === "=") zoom(STEP);
  else if (event.key === "-") zoom(1 / STEP);
  else if (event.key === "0") fit();
  else if (event.key in MOVES) move(...MOVES[event.key].map((one) => 60 * one));
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => { // a link that is a button
  const link = event.target.closest?.("#graph nav a[data-graph]");
  if (event.key !== " " || !link) return;
  event.preventDefault();
  toggle(link);
});

document.addEventListener("wheel", (event) => {
  if (!(event.ctrlKey || event.metaKey) || !event.target.closest("#graph-view")) return;
  event.preventDefault();
  const box = view().getBoundingClientRect();
  zoom(Math.exp(-event.deltaY / 400), { x: event.clientX - box.left, y: event.clientY - box.top });
}, { passive: false });

document.addEventListener("pointerdown", (event) => {
  isDragged = false;
  if (event.button || !event.target.closest("#graph-view")) return;
  drag = { x: event.clientX, y: event.clientY };
});
document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const [right, down] = [drag.x - event.clientX, drag.y - event.clientY];
  if (!isDragged && Math.hypot(right, down) < DRAG_PX) return;
  if (!isDragged) view().setPointerCapture(event.pointerId);
  isDragged = true;
  drag = { x: event.clientX, y: event.clientY };
  move(right, down);
});
for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => {
  drag = null;
});
document.addEventListener("dragstart", (event) => event.target.closest?.("#graph-view") && event.preventDefault());
document.addEventListener("bfm:morphed", (event) => {
  if (event.detail.id !== "graph") return;
  draw();
  find(false);
});
document.getElementById("graph-find").addEventListener("input", () => find());
window.addEventListener("resize", draw);
draw();
