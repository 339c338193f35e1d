// Shortcuts and the command palette. `/` is the search of the page, `g` and a letter a page, `?` the list of all, Ctrl or Cmd and K
// the palette. None fires while somebody types in a field, with other modifiers, or while a dialog is open.

import { rooted } from "./root.js";

const DAGS = rooted("/fragments/palette"); // [[id, address], ...]
const SEQUENCE_MS = 1500; // between `g` and the letter
const MAX_SHOWN = 50;
const SEARCH = 'main input[type="search"], main [role="search"] :is(input:not([type="hidden"]), select)';

const palette = document.getElementById("palette");
const query = document.getElementById("palette-query");
const list = document.getElementById("palette-list");
const none = document.getElementById("palette-none");
const shortcuts = document.getElementById("shortcuts");
const links = [...(shortcuts?.querySelectorAll("[data-go]") ?? [])];
const pages = links.map((link) => ({ name: link.textContent, address: link.getAttribute("href"), kind: "page" }));

let goSince = -Infinity; // when `g` was pressed
let dags = [];
let found = [];
let current = 0;

const isField = (node) => node instanceof Element && (node.isContentEditable || (
  node.matches("input, textarea, select") && !node.matches('[type="checkbox"], [type="radio"], [type="submit"], [type="button"]')
));

// How well a name fits what was typed: null unless it has all letters in this order. Letters in a row and those that begin a word
// count more, and of equal ones the shorter name wins.
export function fit(name, typed) {
  const text = name.toLowerCase();
  let score = -text.length / 1000;
  let at = -1;
  for (const letter of typed.toLowerCase().replace(/\s+/g, "")) {
    const next = text.indexOf(letter, at + 1);
    if (next < 0) return null;
    if (next === at + 1) score += 3;
    else if (/[^a-z0-9]/.test(text[next - 1])) score += 2;
    score -= (next - at - 1) / 100;
    at = next;
  }
  return text.includes(typed.toLowerCase()) ? score + 5 : score;
}

function choose(place) {
  current = Math.max(0, Math.min(place, found.length - 1));
  [...list.children].forEach((option, n) => option.setAttribute("aria-selected", String(n === current)));
  const option = list.children[current];
  if (option) query.setAttribute("aria-activedescendant", option.id);
  else query.removeAttribute("aria-activedescendant");
  option?.scrollIntoView({ block: "nearest" });
}

function show() {
  const typed = query.value.trim();
  found = [...pages, ...dags].map((one) => ({ ...one, score: fit(one.name, typed) })).filter((one) => one.score !== null);
  if (typed) found.sort((a, b) => b.score - a.score);
  found = found.slice(0, MAX_SHOWN);
  list.replaceChildren(...found.map((one, n) => {
    const option = document.createElement("li");
    option.id = `palette-${n}`;
    option.setAttribute("role", "option");
    const kind = document.createElement("span");
    kind.className = "kind";
    kind.textContent = one.kind;
    option.append(one.name, " ", kind);
    return option;
  }));
  none.textContent = found.length ? "" : "Nothing matches.";
  choose(0);
}

async function loadDags() {
  try {
    const response = await fetch(DAGS, { credentials: "same-origin", cache: "no-store" });
    if (!response.ok || response.redirected) return;
    dags = (await response.json()).map(([name, address]) => ({ name, address: rooted(address), kind: "DAG" }));
  } catch {
    return; // server unreachable: pages only
  }
  if (palette.open) show();
}

function openPalette() {
  query.value = "";
  palette.showModal();
  show();
  loadDags();
}

function goTo(place) {
  if (found[place]) location.assign(found[place].address);
}

function onKey(event) {
  if (event.defaultPrevented || event.isComposing || event.repeat || isField(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  const isCommand = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
  if (isCommand && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isSecond = performance.now() - goSince < SEQUENCE_MS;
  goSince = -Infinity;
  const link = isSecond ? links.find((one) => one.dataset.go === event.key) : null;
  const search = [...document.querySelectorAll(SEARCH)].find((one) => one.checkVisibility());
  if (link) location.assign(link.href);
  else if (event.key === "g") goSince = performance.now();
  else if (event.key === "?") shortcuts.showModal();
  else if (event.key === "/" && search) {
    search.focus();
    search.select?.();
  } else return;
  event.preventDefault();
}

if (palette) {
  document.addEventListener("keydown", onKey);
  document.getElementById("palette-open").addEventListener("click", openPalette);
  document.getElementById("shortcuts-close").addEventListener("click", () => shortcuts.close());
  query.addEventListener("input", show);
  query.addEventListener("keydown", (event) => {
    const places = { ArrowDown: current + 1, ArrowUp: current - 1, PageDown: current + 10, PageUp: current - 10 };
    if (event.isComposing) return;
    if (event.key in places) choose(places[event.key]);
    else if (event.key === "Enter") goTo(current);
    else return;
    event.preventDefault();
  });
  list.addEventListener("click", (event) => goTo([...list.children].indexOf(event.target.closest("li"))));
  // A click beside a dialog closes it.
  for (const dialog of [palette, shortcuts]) dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}
