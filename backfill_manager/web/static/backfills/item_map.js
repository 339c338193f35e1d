// Draws the items of a backfill as a map of cells, from the counts in `data-map` (see web/pages/backfills.py, `map_json`).
//
// Each cell links to its item, or to the map of its range. One cell is in the tab order; arrow keys, Home and End move the focus.
// A change of the data repaints only the cells that differ, so the focus stays.

import { rooted } from "../root.js";

const SVG = "http://www.w3.org/2000/svg";
const WORST_FIRST = ["failed", "running", "cancelled", "pending", "success", "skipped"];
const number = new Intl.NumberFormat("en-US");

function make(name, attributes = {}, parent = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent?.append(made);
  return made;
}

class ItemMap {
  constructor(container) {
    this.container = container;
    this.source = document.getElementById(container.dataset.mapOf);
    this.description = document.getElementById(`${container.id}-description`);
    this.text = "";
    this.cells = [];
    this.at = 0;
    this.shape = "";
    container.addEventListener("keydown", (event) => this.onKey(event));
    container.addEventListener("focusin", (event) => this.select(event.target.closest("a")));
    container.addEventListener("pointerover", (event) => this.describe(event.target.closest("a")));
    new ResizeObserver(() => this.layout()).observe(container);
    this.read();
  }

  read() {
    const text = this.source.dataset.map;
    if (text === this.text) return;
    this.text = text;
    this.map = JSON.parse(text);
    const shape = [this.map.first, this.map.last, this.map.per].join();
    if (shape !== this.shape || !this.svg) {
      this.shape = shape;
      this.build();
    }
    this.map.cells.forEach((counts, at) => this.paint(at, counts));
  }

  build() {
    this.container.textContent = "";
    this.columns = 0;
    this.svg = make("svg", {}, null);
    this.dates = make("g", { class: "dates", "aria-hidden": "true" }, this.svg);
    const links = !!this.map.href;
    this.cells = this.map.cells.map((_, at) => {
      const link = make(links ? "a" : "g", links ? { href: this.address(at), tabindex: at ? -1 : 0 } : { role: "img" }, this.svg);
      link.dataset.at = at;
      link.dataset.select = this.range(at).join("-"); // for `selection.js`
      const rect = make("rect", { class: "cell", rx: 2 }, link);
      const part = make("rect", { class: "part", rx: 1 }, link);
      const sign = make("path", { class: "sign" }, link);
      return { link, rect, part, sign, painted: "" };
    });
    this.at = 0;
    this.container.append(this.svg);
    this.layout();
    document.dispatchEvent(new CustomEvent("bfm:drawn"));
  }

  range(at) {
    const first = this.map.first + at * this.map.per;
    return [first, Math.min(first + this.map.per - 1, this.map.last)];
  }

  address(at) {
    const [first, last] = this.range(at);
    return rooted(this.map.href).replace("{first}", first).replace("{last}", last);
  }

  label(at) {
    const [first, last] = this.range(at);
    const begins = this.map.begins[at], ends = this.map.ends[at] || begins;
    const dates = begins === ends ? begins : `${begins} to ${ends}`;
    const counts = this.map.cells[at];
    const states = this.map.states.map((state, n) => (counts[n] ? (last > first ? `${number.format(counts[n])} ${state}` : state) : "")).filter(Boolean);
    const items = last > first ? `items ${number.format(first)} to ${number.format(last)}` : `item ${number.format(first)}`;
    return `${dates ? `${dates}, ` : ""}${items}: ${states.join(", ") || "nothing"}`;
  }

  paint(at, counts) {
    const cell = this.cells[at];
    const key = counts.join();
    if (cell.painted === key) return;
    cell.painted = key;
    const total = counts.reduce((sum, one) => sum + one, 0);
    const of = (state) => counts[this.map.states.indexOf(state)] || 0;
    const commonest = this.map.states[counts.indexOf(Math.max(...counts))];
    const worst = WORST_FIRST.find((state) => of(state)) || commonest;
    cell.rect.setAttribute("class", `cell s-${commonest}`);
    // The worst state is shown as a part from below, with a minimum height however few its items are.
    const share = worst !== commonest && total ? Math.max(worst === "failed" ? 0.5 : 0.3, of(worst) / total) : 0;
    cell.part.setAttribute("class", `part s-${worst}`);
    cell.share = share;
    cell.sign.dataset.of = worst;
    cell.link.setAttribute("aria-label", this.label(at));
    this.position(at);
  }

  layout() {
    if (!this.svg) return;
    const width = this.container.clientWidth;
    if (!width) return;
    const n = this.cells.length;
    this.hasLabels = n <= 62 && this.map.per === 1 && !this.container.classList.contains("small");
    const longest = Math.max(0, ...this.map.begins.slice(0, 62).map((one) => one.length));
    this.left = this.hasLabels ? 0 : Math.min(150, longest ? longest * 6.4 + 14 : 0);
    if (width < 480 && !this.hasLabels) this.left = Math.min(this.left, 84);
    this.cellWidth = this.hasLabels ? Math.max(76, Math.min(190, longest * 7.1 + 34)) : n <= 400 ? 18 : 13;
    this.cellHeight = this.hasLabels ? 30 : n <= 400 ? 18 : 13;
    const fit = Math.max(1, Math.floor((width - this.left) / this.cellWidth));
    const columns = this.hasLabels ? fit : rounded(fit, n);
    if (columns === this.columns && this.width === width) return;
    this.columns = columns;
    this.width = width;
    const rows = Math.ceil(n / columns);
    this.svg.setAttribute("width", Math.min(width, this.left + columns * this.cellWidth));
    this.svg.setAttribute("height", rows * this.cellHeight);
    this.dates.textContent = "";
    if (this.hasLabels) {
      this.cells.forEach((_, at) => {
        make("text", { x: (at % columns) * this.cellWidth + 22, y: Math.floor(at / columns) * this.cellHeight + 18 }, this.dates).textContent = shortened(this.map.begins[at], this.cellWidth);
      });
      this.svg.append(this.dates); // over the cells
    } else if (this.left) {
      const every = Math.max(1, Math.ceil(15 / this.cellHeight));
      for (let row = 0; row < rows; row += every) {
        make("text", { x: 0, y: row * this.cellHeight + this.cellHeight - 3 }, this.dates).textContent = shortened(this.map.begins[row * columns], this.left);
      }
    }
    this.cells.forEach((_, at) => this.position(at));
  }

  position(at) {
    if (!this.columns) return;
    const { rect, part, sign, share } = this.cells[at];
    const gap = this.hasLabels ? 4 : 2;
    const w = this.cellWidth - gap, h = this.cellHeight - gap;
    const x = this.left + (at % this.columns) * this.cellWidth, y = Math.floor(at / this.columns) * this.cellHeight;
    set(rect, { x, y, width: w, height: h });
    const tall = Math.round((share || 0) * h * 10) / 10;
    set(part, { x, y: y + h - tall, width: w, height: tall });
    const size = this.hasLabels ? 8 : Math.min(w, h) * 0.44;
    const cx = this.hasLabels ? x + 11 : x + w / 2, cy = y + h / 2;
    sign.setAttribute("d", signOf(sign.dataset.of, cx, cy, size / 2));
  }

  select(link) {
    if (!link) return;
    this.cells[this.at]?.link.setAttribute("tabindex", -1);
    this.at = Number(link.dataset.at);
    link.setAttribute("tabindex", 0);
    this.describe(link);
  }

  describe(link) {
    if (link && this.description) this.description.textContent = this.label(Number(link.dataset.at));
  }

  onKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || event.altKey || event.ctrlKey || event.metaKey || !this.map.href) return;
    event.preventDefault();
    const target = this.at + step;
    const to = Math.max(0, Math.min(this.cells.length - 1, target));
    if (Math.abs(step) === this.columns && to !== target) return; // no such row
    this.cells[to].link.focus();
  }
}

function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) if (node.getAttribute(key) !== String(value)) node.setAttribute(key, value);
}

// As many columns as fit; many are rounded down to tens, so that rows begin at round numbers.
function rounded(fit, n) {
  return n <= fit ? n : fit < 20 ? fit : Math.floor(fit / 10) * 10;
}

function shortened(text, width) {
  const max = Math.floor((width - 8) / 6.2);
  if (text.length > max && /^\d{4}-\d\d-\d\d /.test(text)) return text.slice(0, 10); // drop the time
  return text.length > max ? `${text.slice(0, Math.max(1, max - 1))}…` : text;
}

// Not by colour alone: a cross for failed, a dot for running, a stroke for cancelled or skipped.
function signOf(state, x, y, r) {
  if (state === "failed") return `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`;
  if (state === "running") return `M${x - r * 0.6} ${y}a${r * 0.6} ${r * 0.6} 0 1 0 ${r * 1.2} 0a${r * 0.6} ${r * 0.6} 0 1 0 ${-r * 1.2} 0`;
  if (state === "cancelled") return `M${x - r} ${y + r}l${2 * r} ${-2 * r}`;
  if (state === "skipped") return `M${x - r} ${y}h${2 * r}`;
  return "";
}

const maps = new Map();

function draw() {
  for (const container of document.querySelectorAll("[data-map-of]")) {
    const map = maps.get(container.id);
    if (map?.container === container && map.source.isConnected) map.read();
    else if (document.getElementById(container.dataset.mapOf)) maps.set(container.id, new ItemMap(container));
  }
}

document.addEventListener("bfm:morphed", draw);
document.addEventListener("htmx:afterSettle", draw);
draw();
