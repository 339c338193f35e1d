// Selects items of a backfill, days of a calendar or runs of a grid, for the actions of the selection bar.
//
// A cell has its number or range in `data-select` (`12`, `901-1000`); cells lie in an element with `data-selectable`: `area`, where
// a rectangle can be drawn, or `rows`, a list with checkboxes. The selection is one set of numbers for the whole page, kept as ranges
// under `data-key` of the bar for this tab of the browser: so other pages of a list, a zoom of the map, another year and a live
// refresh keep it, and it is posted as `1-5,9`, however much it holds.
//
// Pointer: a rectangle adds what it covers, or, begun on a selected cell, takes it away; Shift and click selects up to a cell. With
// `Select` on, a click or tap selects. Keyboard: Space toggles, Shift and arrows extend, Escape ends the mode, then deselects all.

import { inTab, keepInTab } from "./kept.js";

const MIN_DRAG_PX = 5;
const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
const bar = document.getElementById("selection");
const status = document.getElementById("selection-status");
const number = new Intl.NumberFormat("en-US");
const storageKey = `bfm-selection:${bar?.dataset.key}`;

// -- sets of numbers as ranges: in order, with a gap between any two -----------------------------------------------------

function merged(ranges) {
  const found = [];
  for (const [first, last] of [...ranges].sort((a, b) => a[0] - b[0])) {
    const before = found.at(-1);
    if (before && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else found.push([first, last]);
  }
  return found;
}

function without(ranges, taken) {
  let left = ranges;
  for (const [first, last] of merged(taken)) {
    left = left.flatMap(([a, b]) => (b < first || a > last ? [[a, b]] : [[a, first - 1], [last + 1, b]].filter(([c, d]) => c <= d)));
  }
  return left;
}

// How many of the numbers from first to last are in the ranges.
function overlap(ranges, first, last) {
  let low = 0, high = ranges.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ranges[middle][1] < first) low = middle + 1;
    else high = middle;
  }
  let n = 0;
  for (; low < ranges.length && ranges[low][0] <= last; low++) n += Math.min(last, ranges[low][1]) - Math.max(first, ranges[low][0]) + 1;
  return n;
}

const parsed = (text) => merged(text.split(",").filter((part) => /^\d+(-\d+)?$/.test(part)).map((part) => {
  const [first, last] = part.split("-").map(Number);
  return [first, last ?? first];
}));
const written = (ranges) => ranges.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");

// -- the selection -----------------------------------------------------------------------------------------------------

let selected = [];
let mode = false; // a click selects
let anchor = null; // the cell (its `data-select`) from which Shift extends
let base = []; // the selection when the anchor was set
let focusBefore = null; // the cell in focus when a key was pressed
let drag = null;

const cellOf = (node) => {
  const cell = node instanceof Element ? node.closest("[data-select]") : null;
  return cell?.closest("[data-selectable]") ? cell : null;
};
const areaOf = (node) => (node instanceof Element ? node.closest("[data-selectable]") : null);
const cellsOf = (area) => [...area.querySelectorAll("[data-select]")];
const rangeOf = (cell) => parsed(cell.dataset.select)[0];
const isSelected = (cell) => overlap(selected, ...rangeOf(cell)) > 0;

function select(ranges, say = true) {
  selected = ranges;
  keepInTab(storageKey, written(selected));
  paint();
  if (say) status.textContent = countText();
}

function countText() {
  const n = selected.reduce((sum, [first, last]) => sum + last - first + 1, 0);
  return n ? `${number.format(n)} ${bar.dataset.noun}${n === 1 ? "" : "s"} selected` : "Nothing selected";
}

const toggle = (cell) => select(isSelected(cell) ? without(selected, [rangeOf(cell)]) : merged([...selected, rangeOf(cell)]));

function anchorAt(cell) {
  anchor = cell.dataset.select;
  base = selected;
}

// Adds the cells of the area between the anchor and this one, in the order in which they are shown.
function extendTo(cell) {
  const order = [...new Set(cellsOf(areaOf(cell)).map((one) => one.dataset.select))];
  const [from, to] = [order.indexOf(anchor), order.indexOf(cell.dataset.select)].sort((a, b) => a - b);
  if (from < 0) {
    anchorAt(cell);
    select(merged([...selected, rangeOf(cell)]));
    return;
  }
  select(merged([...base, ...order.slice(from, to + 1).flatMap(parsed)]));
}

function set(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

function paint() {
  for (const cell of document.querySelectorAll("[data-selectable] [data-select]")) {
    const [first, last] = rangeOf(cell);
    const n = overlap(selected, first, last);
    cell.classList.toggle("is-selected", n > 0);
    cell.classList.toggle("is-partly-selected", n > 0 && n <= last - first);
    if (!cell.classList.length) cell.removeAttribute("class");
    const box = cell.querySelector(".select-box");
    if (box) {
      box.checked = box.defaultChecked = n > 0; // of the page, not an edit that a live refresh has to keep
      set(box, "aria-label", `Select ${bar.dataset.noun} ${number.format(first)}`);
    } else {
      const described = cell.matches("a, [tabindex]") ? cell : cell.querySelector("a");
      if (described) set(described, "aria-describedby", n > 0 ? "selection-word" : null);
    }
  }
  for (const box of document.querySelectorAll(".select-page")) {
    const boxes = [...areaOf(box).querySelectorAll(".select-box")];
    box.checked = box.defaultChecked = boxes.length > 0 && boxes.every((one) => one.checked);
    box.indeterminate = !box.checked && boxes.some((one) => one.checked);
  }
  for (const button of document.querySelectorAll("[data-select-mode]")) set(button, "aria-pressed", String(mode));
  for (const area of document.querySelectorAll("[data-selectable]")) area.classList.toggle("is-selecting", mode);
  bar.hidden = !selected.length && !mode;
  bar.querySelector(".selection-count").textContent = countText();
  bar.elements.selected.value = written(selected);
  for (const button of bar.querySelectorAll('[name="do"]')) button.disabled = !selected.length;
}

// -- pointer -----------------------------------------------------------------------------------------------------------

// Where the cells lie; they move when something scrolls.
function measure() {
  drag.cells = cellsOf(drag.area).map((cell) => [cell, cell.getBoundingClientRect()]);
}

function onDown(event) {
  const area = areaOf(event.target);
  if (event.button !== 0 || event.pointerType === "touch" || area?.dataset.selectable !== "area") return;
  if (!event.target.closest("svg, table")) return; // a scroll bar
  const cell = cellOf(event.target);
  drag = { area, x: event.clientX, y: event.clientY, takesAway: !!cell && isSelected(cell), base: selected, pointer: event.pointerId };
}

function onMove(event) {
  if (!drag || event.pointerId !== drag.pointer) return;
  drag.to = [event.clientX, event.clientY];
  if (!drag.box) {
    if (Math.hypot(event.clientX - drag.x, event.clientY - drag.y) < MIN_DRAG_PX) return;
    drag.box = document.createElement("div");
    drag.box.className = "selection-rectangle";
    document.body.append(drag.box);
    document.body.classList.add("is-dragging");
    measure();
    drag.origin = drag.cells[0]?.[1];
    drag.area.setPointerCapture(event.pointerId);
  }
  event.preventDefault();
  cover();
}

function cover() {
  const [x, y] = drag.to;
  const [left, right, top, bottom] = [Math.min(x, drag.x), Math.max(x, drag.x), Math.min(y, drag.y), Math.max(y, drag.y)];
  Object.assign(drag.box.style, { left: `${left}px`, top: `${top}px`, width: `${right - left}px`, height: `${bottom - top}px` });
  const covered = drag.cells.filter(([, box]) => box.left < right && box.right > left && box.top < bottom && box.bottom > top);
  const ranges = merged(covered.map(([cell]) => rangeOf(cell)));
  select(drag.takesAway ? without(drag.base, ranges) : merged([...drag.base, ...ranges]), false);
}

function onScroll() {
  if (!drag?.box) return;
  measure();
  const now = drag.cells[0]?.[1];
  if (now && drag.origin) {
    drag.x += now.left - drag.origin.left;
    drag.y += now.top - drag.origin.top;
    drag.origin = now;
  }
  cover();
}

function endDrag(keep) {
  const ended = drag;
  drag = null;
  if (!ended?.box) return;
  ended.box.remove();
  document.body.classList.remove("is-dragging");
  select(keep ? selected : ended.base);
  anchor = null;
  // The click that follows a release is no click on a cell.
  const swallow = (event) => {
    event.preventDefault();
    event.stopPropagation();
  };
  document.addEventListener("click", swallow, { capture: true, once: true });
  setTimeout(() => document.removeEventListener("click", swallow, { capture: true }), 0);
}

function onClick(event) {
  const { target } = event;
  if (!(target instanceof Element)) return;
  if (target.closest("[data-select-mode]")) {
    mode = !mode;
    paint();
    status.textContent = mode ? "A click or a tap selects" : "A click or a tap opens";
  } else if (target.closest("[data-deselect]")) {
    mode = false;
    anchor = null;
    select([]);
  } else if (target.closest("[data-select-all]")) {
    selectAll(target.closest("[data-select-all]"));
  } else if (target.matches(".select-page")) {
    const ranges = cellsOf(areaOf(target)).map(rangeOf);
    select(target.checked ? merged([...selected, ...ranges]) : without(selected, ranges));
  } else {
    onCell(event, cellOf(target));
  }
}

function onCell(event, cell) {
  const isBox = event.target.matches(".select-box");
  if (!cell || event.ctrlKey || event.metaKey || event.altKey || !(isBox || mode || event.shiftKey)) return;
  if (!isBox) {
    event.preventDefault();
    event.stopPropagation();
  }
  if (event.shiftKey && anchor !== null) {
    extendTo(cell);
    return;
  }
  toggle(cell);
  anchorAt(cell);
}

// All that match the filter, on every page of the list.
async function selectAll(button) {
  button.disabled = true;
  try {
    const response = await fetch(button.dataset.selectAll, { credentials: "same-origin", cache: "no-store" });
    const text = await response.text();
    if (response.ok) select(merged([...selected, ...parsed(text)]));
    else status.textContent = bar.querySelector(".selection-count").textContent = response.status === 422 ? text : "The items could not be read; try again.";
    bar.hidden = false;
  } catch {
    status.textContent = "The server can't be reached; try again.";
  } finally {
    button.disabled = false;
  }
}

// -- keyboard ----------------------------------------------------------------------------------------------------------

const focusable = (cell) => (cell.matches("a, [tabindex]") ? cell : cell.querySelector("a, .select-box"));

// The nearest cell to that side, of those that lie on the same line.
function neighbour(area, from, [dx, dy]) {
  const here = from.getBoundingClientRect();
  const x = here.left + here.width / 2, y = here.top + here.height / 2;
  let best = null, distance = Infinity;
  for (const cell of cellsOf(area)) {
    const node = focusable(cell);
    if (!node || node === from) continue;
    const box = node.getBoundingClientRect();
    const ahead = dx * (box.left + box.width / 2 - x) + dy * (box.top + box.height / 2 - y);
    const aside = Math.abs(dx ? box.top + box.height / 2 - y : box.left + box.width / 2 - x);
    if (ahead < 2 || aside > (dx ? here.height : here.width) / 2 + 2 || ahead >= distance) continue;
    [best, distance] = [node, ahead];
  }
  return best;
}

function onKey(event) {
  if (event.key === "Escape") {
    onEscape(event);
    return;
  }
  const cell = focusBefore;
  if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === " " && !event.target.matches("input, button")) {
    event.preventDefault();
    toggle(cell);
    anchorAt(cell);
    return;
  }
  const step = ARROWS[event.key];
  if (!step) return;
  const area = areaOf(cell);
  const moves = area.dataset.selectable === "rows" || (event.shiftKey ? "arrows" in area.dataset : area.dataset.arrows === "all");
  if (!event.defaultPrevented && moves) {
    const next = neighbour(area, focusable(cell) ?? cell, step);
    if (!next) return;
    event.preventDefault();
    next.focus();
  }
  const reached = cellOf(document.activeElement);
  if (!event.shiftKey || !reached || reached === cell) return;
  if (anchor === null) anchorAt(cell);
  extendTo(reached);
}

function onEscape(event) {
  if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
  anchor = null;
  if (drag?.box) endDrag(false);
  else if (mode) {
    mode = false;
    paint();
  } else if (selected.length && !event.target.matches("textarea, select, input:not(.select-box, .select-page)")) select([]);
  else return;
  event.preventDefault(); // the next one closes the panel of the grid
}

if (bar) {
  selected = parsed(inTab(storageKey));
  document.addEventListener("pointerdown", onDown);
  document.addEventListener("pointermove", onMove);
  document.addEventListener("pointerup", (event) => event.pointerId === drag?.pointer && endDrag(true));
  document.addEventListener("pointercancel", () => endDrag(false));
  document.addEventListener("scroll", onScroll, true);
  document.addEventListener("click", onClick, true);
  // Links are not carried away, and no text is marked, where a rectangle is drawn.
  document.addEventListener("dragstart", (event) => drag && event.preventDefault());
  document.addEventListener("selectstart", (event) => drag && event.preventDefault());
  document.addEventListener("keydown", () => {
    focusBefore = cellOf(document.activeElement);
  }, true);
  document.addEventListener("keydown", onKey);
  document.addEventListener("bfm:morphed", paint);
  document.addEventListener("bfm:drawn", paint);
  window.addEventListener("pageshow", paint);
  paint();
}
