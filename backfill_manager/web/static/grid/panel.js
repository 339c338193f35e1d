// The side panel of a DAG's grid. A click on a cell opens it with the task instance, one on the head of a column with the run; the
// address names them, so it can be shared, and Back works. Arrow keys move between cells, and the panel follows; Escape closes it.
// The only listener for clicks on cells: whoever selects by dragging stops the click that ends a drag (`event.preventDefault()` in the
// capturing phase), and it is left alone here.

import { fetchPage, morph } from "../live.js";

const CELL = ".grid a[data-run]";
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const FOLLOW_MS = 120; // after the last arrow key
const RETRY_MS = 5000;

let wanted = 0; // number of the newest fetch: older ones are dropped
let follows = null;

const panel = () => document.getElementById("panel");
const isOpen = () => Boolean(panel()?.dataset.src);
const cells = () => [...document.querySelectorAll(CELL)];
const named = (address) => {
  const query = new URL(address).searchParams;
  return [query.get("run") ?? "", query.get("task") ?? ""];
};
const cellOf = ([run, task]) => cells().find((cell) => cell.dataset.run === run && (cell.dataset.task ?? "") === task);

// The address of the grid with this cell, or with none.
function addressOf(cell) {
  const address = new URL(location.href);
  for (const name of ["run", "task", "request_id"]) address.searchParams.delete(name);
  address.hash = "";
  if (cell) {
    address.searchParams.set("run", cell.dataset.run);
    if (cell.dataset.task) address.searchParams.set("task", cell.dataset.task);
  }
  return address.href;
}

// Which cell is shown, and which one the Tab key reaches: one of the grid, as arrow keys lead to the others.
function mark() {
  const shown = isOpen() ? cellOf(named(location.href)) : null;
  const reached = document.activeElement?.closest?.(CELL) ?? shown ?? cells().at(-1);
  for (const cell of cells()) {
    if (cell === shown) cell.setAttribute("aria-current", "true");
    else cell.removeAttribute("aria-current");
    cell.tabIndex = cell === reached ? 0 : -1;
  }
  document.body.classList.toggle("has-panel", isOpen());
}

function put(fresh) {
  morph(panel(), fresh);
  mark();
  document.dispatchEvent(new CustomEvent("bfm:morphed", { detail: { id: "panel" } }));
  const isAway = isOpen() && !panel().contains(document.activeElement);
  if (isAway && matchMedia("(max-width: 640px)").matches) document.getElementById("panel-close").focus();
}

// The panel without what it is to show; without an address it is closed.
function without(src, name, text) {
  const fresh = panel().cloneNode(false);
  delete fresh.dataset.src;
  if (!src) return fresh;
  fresh.dataset.src = src;
  fresh.append(document.getElementById("panel-without").content.cloneNode(true));
  fresh.querySelector("a").id = "panel-close";
  fresh.querySelector("h2").textContent = name;
  fresh.querySelector(".note").textContent = text;
  return fresh;
}

// Shows what the address says. Until that is there, nothing can be done with what the panel showed before.
async function show() {
  const mine = ++wanted;
  const [run, task] = named(location.href);
  if (!run) return put(without());
  const src = panel().dataset.at + location.search;
  if (isOpen()) {
    panel().dataset.src = src;
    for (const part of panel().querySelectorAll(".card > :not(.panel-head)")) part.inert = true;
  } else put(without(src, task || run, "Loading…"));
  let page;
  try {
    page = await fetchPage(src, { anew: true });
  } catch { // the server can't be reached, or is too busy
    if (mine !== wanted) return;
    put(without(src, task || run, "The server can’t be reached. Trying again…"));
    setTimeout(() => mine === wanted && show(), RETRY_MS);
    return;
  }
  if (mine !== wanted) return;
  const fresh = page?.getElementById("panel");
  if (!fresh) return location.reload(); // the page says why
  put(fresh);
}

function open(cell, { follow = false } = {}) {
  history[follow ? "replaceState" : "pushState"](null, "", addressOf(cell));
  return show();
}

function close() {
  const last = cellOf(named(location.href));
  history.pushState(null, "", addressOf(null));
  show();
  last?.focus();
}

function neighbour(cell, [down, right]) {
  const at = cell.closest("td, th");
  let [row, column] = [at.parentElement, at.cellIndex];
  for (;;) {
    if (down) {
      const rows = [...row.closest("table").querySelectorAll("thead tr, tbody tr")];
      row = rows[rows.indexOf(row) + down];
    } else column += right;
    const next = row?.cells[column];
    if (!next) return null;
    const link = next.querySelector("a[data-run]");
    if (link) return link; // a run without this task is passed over
  }
}

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const cell = event.target.closest(CELL);
  const isClose = event.target.closest("#panel-close");
  if (!cell && !isClose) return;
  event.preventDefault();
  if (isClose) return close();
  cell.focus({ preventScroll: true });
  open(cell);
});

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (event.key === "Escape" && isOpen() && !document.querySelector("dialog[open]")) {
    event.preventDefault();
    return close();
  }
  const cell = event.target.closest?.(CELL);
  if (!cell || !(event.key in STEPS)) return;
  event.preventDefault();
  const next = neighbour(cell, STEPS[event.key]);
  if (!next) return;
  next.focus();
  mark();
  if (!isOpen()) return;
  clearTimeout(follows);
  follows = setTimeout(() => open(next, { follow: true }), FOLLOW_MS);
});

window.addEventListener("popstate", show);
document.addEventListener("bfm:morphed", (event) => event.detail.id === "grid" && mark());
document.addEventListener("focusin", (event) => event.target.closest?.(CELL) && mark());
mark();
