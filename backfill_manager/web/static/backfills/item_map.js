// Draws the items of a backfill as a map of cells, from the counts in `data-map` (see web/pages/backfills.py, `drawn_map`).
//
// Each cell is a link: to its item, or to the map of its range. One of them is in the tab order; arrow keys, Home and End
// move among them. A change of the data repaints the cells that differ, so focus stays where it is.

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
  constructor(place) {
    this.place = place;
    this.source = document.getElementById(place.dataset.mapOf);
    this.told = document.getElementById(`${place.id}-told`);
    this.text = "";
    this.cells = [];
    this.at = 0;
    this.shape = "";
    place.addEventListener("keydown", (event) => this.moved(event));
    place.addEventListener("focusin", (event) => this.chosen(event.target.closest("a")));
    place.addEventListener("pointerover", (event) => this.tell(event.target.closest("a")));
    new ResizeObserver(() => this.laidOut()).observe(place);
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
    this.place.textContent = "";
    this.columns = 0;
    this.svg = make("svg", {}, null);
    this.dates = make("g", { class: "dates", "aria-hidden": "true" }, this.svg);
    const links = !!this.map.href;
    this.cells = this.map.cells.map((_, at) => {
      const link = make(links ? "a" : "g", links ? { href: this.address(at), tabindex: at ? -1 : 0 } : { role: "img" }, this.svg);
      link.dataset.at = at;
      const rect = make("rect", { class: "cell", rx: 2 }, link);
      const part = make("rect", { class: "part", rx: 1 }, link);
      const sign = make("path", { class: "sign" }, link);
      return { link, rect, part, sign, painted: "" };
    });
    this.at = 0;
    this.place.append(this.svg);
    this.laidOut();
  }

  range(at) {
    const first = this.map.first + at * this.map.per;
    return [first, Math.min(first + this.map.per - 1, this.map.last)];
  }

  address(at) {
    const [first, last] = this.range(at);
    return this.map.href.replace("{first}", first).replace("{last}", last);
  }

  label(at) {
    const [first, last] = this.range(at);
    const begins = this.map.begins[at], ends = this.map.ends[at] || begins;
    const dates = begins === ends ? begins : `${begins} to ${ends}`;
    const counts = this.map.cells[at];
    const told = this.map.states.map((state, n) => (counts[n] ? (last > first ? `${number.format(counts[n])} ${state}` : state) : "")).filter(Boolean);
    const which = last > first ? `items ${number.format(first)} to ${number.format(last)}` : `item ${number.format(first)}`;
    return `${dates ? `${dates}, ` : ""}${which}: ${told.join(", ") || "nothing"}`;
  }

  paint(at, counts) {
    const cell = this.cells[at];
    const key = counts.join();
    if (cell.painted === key) return;
    cell.painted = key;
    const total = counts.reduce((sum, one) => sum + one, 0);
    const of = (state) => counts[this.map.states.indexOf(state)] || 0;
    const most = this.map.states[counts.indexOf(Math.max(...counts))];
    const worst = WORST_FIRST.find((state) => of(state)) || most;
    cell.rect.setAttribute("class", `cell s-${most}`);
    // What must not be overlooked among many others: a part from below, of some height however few they are.
    const share = worst !== most && total ? Math.max(worst === "failed" ? 0.5 : 0.3, of(worst) / total) : 0;
    cell.part.setAttribute("class", `part s-${worst}`);
    cell.share = share;
    cell.sign.dataset.of = worst;
    cell.link.setAttribute("aria-label", this.label(at));
    this.place1(at);
  }

  laidOut() {
    if (!this.svg) return;
    const width = this.place.clientWidth;
    if (!width) return;
    const n = this.cells.length;
    this.named = n <= 62 && this.map.per === 1 && !this.place.classList.contains("small");
    const longest = Math.max(0, ...this.map.begins.slice(0, 62).map((one) => one.length));
    this.left = this.named ? 0 : Math.min(150, longest ? longest * 6.4 + 14 : 0);
    if (width < 480 && !this.named) this.left = Math.min(this.left, 84);
    this.wide = this.named ? Math.max(76, Math.min(190, longest * 7.1 + 34)) : n <= 400 ? 18 : 13;
    this.high = this.named ? 30 : n <= 400 ? 18 : 13;
    const fit = Math.max(1, Math.floor((width - this.left) / this.wide));
    const columns = this.named ? fit : rounded(fit, n);
    if (columns === this.columns && this.width === width) return;
    this.columns = columns;
    this.width = width;
    const rows = Math.ceil(n / columns);
    this.svg.setAttribute("width", Math.min(width, this.left + columns * this.wide));
    this.svg.setAttribute("height", rows * this.high);
    this.dates.textContent = "";
    if (this.named) {
      this.cells.forEach((_, at) => {
        make("text", { x: (at % columns) * this.wide + 22, y: Math.floor(at / columns) * this.high + 18 }, this.dates).textContent = shortened(this.map.begins[at], this.wide);
      });
      this.svg.append(this.dates); // over the cells
    } else if (this.left) {
      const every = Math.max(1, Math.ceil(15 / this.high));
      for (let row = 0; row < rows; row += every) {
        make("text", { x: 0, y: row * this.high + this.high - 3 }, this.dates).textContent = shortened(this.map.begins[row * columns], this.left);
      }
    }
    this.cells.forEach((_, at) => this.place1(at));
  }

  place1(at) {
    if (!this.columns) return;
    const { rect, part, sign, share } = this.cells[at];
    const gap = this.named ? 4 : 2;
    const w = this.wide - gap, h = this.high - gap;
    const x = this.left + (at % this.columns) * this.wide, y = Math.floor(at / this.columns) * this.high;
    set(rect, { x, y, width: w, height: h });
    const tall = Math.round((share || 0) * h * 10) / 10;
    set(part, { x, y: y + h - tall, width: w, height: tall });
    const size = this.named ? 8 : Math.min(w, h) * 0.44;
    const cx = this.named ? x + 11 : x + w / 2, cy = y + h / 2;
    sign.setAttribute("d", signOf(sign.dataset.of, cx, cy, size / 2));
  }

  chosen(link) {
    if (!link) return;
    this.cells[this.at]?.link.setAttribute("tabindex", -1);
    this.at = Number(link.dataset.at);
    link.setAttribute("tabindex", 0);
    this.tell(link);
  }

  tell(link) {
    if (link && this.told) this.told.textContent = this.label(Number(link.dataset.at));
  }

  moved(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || event.altKey || event.ctrlKey || event.metaKey || !this.map.href) return;
    event.preventDefault();
    const wanted = this.at + step;
    const to = Math.max(0, Math.min(this.cells.length - 1, wanted));
    if (Math.abs(step) === this.columns && to !== wanted) return; // there is no such row
    this.cells[to].link.focus();
  }
}

function set(node, attributes) {
  for (const [key, value] of Object.entries(attributes)) if (node.getAttribute(key) !== String(value)) node.setAttribute(key, value);
}

// As many columns as fit, by tens where there are many, so that rows begin at round numbers.
function rounded(fit, n) {
  return n <= fit ? n : fit < 20 ? fit : Math.floor(fit / 10) * 10;
}

function shortened(text, width) {
  const most = Math.floor((width - 8) / 6.2);
  if (text.length > most && /^\d{4}-\d\d-\d\d /.test(text)) return text.slice(0, 10); // a date says more than half a time
  return text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text;
}

// Not by colour alone: a cross for what failed, a dot for what runs, a stroke for what was cancelled or skipped.
function signOf(state, x, y, r) {
  if (state === "failed") return `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`;
  if (state === "running") return `M${x - r * 0.6} ${y}a${r * 0.6} ${r * 0.6} 0 1 0 ${r * 1.2} 0a${r * 0.6} ${r * 0.6} 0 1 0 ${-r * 1.2} 0`;
  if (state === "cancelled") return `M${x - r} ${y + r}l${2 * r} ${-2 * r}`;
  if (state === "skipped") return `M${x - r} ${y}h${2 * r}`;
  return "";
}

const maps = new Map();

function draw() {
  for (const place of document.querySelectorAll("[data-map-of]")) {
    const known = maps.get(place.id);
    if (known?.place === place && known.source.isConnected) known.read();
    else if (document.getElementById(place.dataset.mapOf)) maps.set(place.id, new ItemMap(place));
  }
}

document.addEventListener("bfm:morphed", draw);
document.addEventListener("htmx:afterSettle", draw);
draw();
