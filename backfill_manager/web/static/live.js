// Live updates: refreshes parts of a page when the state changes.
//
// An element with an id and `data-live="table1 table2"` depends on these tables. When `/api/v1/events` reports a change of one,
// the page (or the element's `data-src`) is fetched again, once for all elements and at most once a second, and the element is
// morphed: unchanged nodes stay, and with them focus, scroll, selection, typed text and open <details>.
// The server sends the content without the page frame, or 304 if it equals what the page shows.
// Events for other modules: `bfm:changed` (detail.tables) on document, and `bfm:morphed` after a morph.

import { rooted } from "./root.js";

const EVENTS = rooted("/api/v1/events");
const REFRESH_INTERVAL_MS = 1000;
const STATUS_BAR = rooted("/fragments/status_bar");
const STATUS_INTERVAL_MS = 5000;

let dirty = new Set();
let fetching = false;
let lastRefresh = 0;
let timer = null;
let source = null;
let listening = "";
const versions = new Map();
const etags = new Map(); // address -> ETag of the content that the page shows completely
let skippedInput = false; // a morph left an edited field alone

const liveElements = () => [...document.querySelectorAll("[data-live][id]")];
const tablesOf = (element) => element.dataset.live.split(/\s+/).filter(Boolean);
const listenedTables = () => [...document.querySelectorAll("[data-listen]")].flatMap((element) => element.dataset.listen.split(/\s+/));

export function morph(element, fresh, style = "outerHTML") {
  window.Idiomorph.morph(element, fresh, {
    morphStyle: style,
    ignoreActiveValue: Boolean(document.activeElement?.matches("input, textarea, select")), // of others it would leave the content alone
    callbacks: {
      beforeAttributeUpdated: (name, node) => !(name === "open" && (node.tagName === "DETAILS" || node.tagName === "DIALOG")),
      beforeNodeMorphed: (old, fresh) => {
        if (!(old instanceof Element) || !(old.hasAttribute("data-keep") || isEdited(old) || goesWithEdited(old))) return true;
        if (old.hasAttribute("data-keep")) return false;
        if (hasSameValue(old, fresh)) return true; // the server has the typed value by now
        skippedInput = true;
        return false;
      },
    },
  });
}

function isEdited(node) {
  if (node instanceof HTMLInputElement && (node.type === "checkbox" || node.type === "radio")) return node.checked !== node.defaultChecked;
  if (node instanceof HTMLInputElement || node instanceof HTMLTextAreaElement) return node.value !== node.defaultValue;
  return node instanceof HTMLSelectElement && [...node.options].some((option) => option.selected !== option.defaultSelected);
}

// Hidden fields say what the user has seen (`was` of a note): they stay while the form is typed in.
function goesWithEdited(node) {
  if (!(node instanceof HTMLInputElement) || node.type !== "hidden" || !node.form) return false;
  return [...node.form.elements].some((one) => isEdited(one) || (one === document.activeElement && !(one instanceof HTMLButtonElement)));
}

const hasSameValue = (old, fresh) => old.tagName === fresh.tagName && old.type === fresh.type && (
  old.type === "checkbox" || old.type === "radio" ? old.checked === fresh.checked : old.value === fresh.value
);

const isLogin = (address) => new URL(address, location.href).pathname === rooted("/login");
let isLoggingOut = false;
document.addEventListener("submit", (event) => {
  isLoggingOut ||= event.target.getAttribute("action") === rooted("/logout");
});
const goToLogin = () => isLoggingOut || location.reload(); // else the reload would overtake the log-out, and come back here

// The parsed page; null if it is unavailable or not modified. `anew`: modified or not.
export async function fetchPage(address, { anew = false } = {}) {
  const headers = { "X-Live": "1" };
  if (!anew && etags.has(address)) headers["If-None-Match"] = etags.get(address);
  const response = await fetch(address, { headers, credentials: "same-origin", cache: "no-store" });
  if (response.redirected && isLogin(response.url)) goToLogin();
  if (response.status >= 500 || response.status === 429) throw new Error(`${response.status}`); // temporary: retried later
  if (!response.ok) return null;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  page.etag = response.headers.get("ETag");
  updateAges(page);
  return page;
}

// Fetches every address with an element that depends on a changed table, and morphs all elements of that address, so that they
// agree with each other. `anew`: whatever the page showed before under that address.
export async function refresh(tables, { anew = false } = {}) {
  if (anew) etags.clear();
  const bySource = new Map();
  for (const element of liveElements()) {
    const address = element.dataset.src || location.href;
    bySource.set(address, [...(bySource.get(address) ?? []), element]);
  }
  for (const [address, elements] of bySource) {
    if (!elements.some((element) => tablesOf(element).some((table) => tables.has(table)))) continue;
    const page = await fetchPage(address);
    if (!page) continue;
    if ((elements[0].dataset.src || location.href) !== address) {
      tables.forEach((table) => dirty.add(table)); // the address changed meanwhile (a search, another cell): refresh that one
      continue;
    }
    skippedInput = false;
    for (const element of elements) {
      const fresh = page.getElementById(element.id);
      if (!fresh || !element.isConnected || element.outerHTML === fresh.outerHTML) continue;
      morph(element, fresh);
      const current = document.getElementById(element.id);
      if (current && window.htmx) window.htmx.process(current);
      document.dispatchEvent(new CustomEvent("bfm:morphed", { detail: { id: element.id } }));
    }
    const isInUse = elements.some((element) => element.contains(document.activeElement) && "value" in document.activeElement);
    if (page.etag && !skippedInput && !isInUse) etags.set(address, page.etag);
    else etags.delete(address);
  }
  updateAges();
}

async function refreshDirty() {
  timer = null;
  if (fetching || document.hidden || !dirty.size) return;
  const tables = dirty;
  dirty = new Set();
  fetching = true;
  lastRefresh = performance.now();
  try {
    await refresh(tables);
  } catch {
    tables.forEach((table) => dirty.add(table)); // server unreachable: retried later
  } finally {
    fetching = false;
  }
  if (dirty.size) scheduleRefresh();
}

function scheduleRefresh() {
  if (timer === null) timer = setTimeout(refreshDirty, Math.max(0, lastRefresh + REFRESH_INTERVAL_MS - performance.now()));
}

export function changed(tables) {
  tables.forEach((table) => dirty.add(table));
  document.dispatchEvent(new CustomEvent("bfm:changed", { detail: { tables: new Set(tables) } }));
  scheduleRefresh();
}

// Browsers allow about six HTTP/1.1 connections per server over all tabs, and an event stream keeps one open: hidden tabs
// close theirs, or a seventh tab could not load.
function listen() {
  const topics = document.hidden ? "" : [...new Set([...liveElements().flatMap(tablesOf), ...listenedTables()])].sort().join(",");
  if (topics === listening) return;
  listening = topics;
  source?.close();
  if (!topics) return;
  source = new EventSource(`${EVENTS}?topics=${encodeURIComponent(topics)}`);
  // The first event after (re)connecting has the versions of all tables: newer ones are fetched.
  source.addEventListener("changed", (event) => {
    const received = Object.entries(JSON.parse(event.data).tables);
    const tables = received.filter(([table, version]) => versions.get(table) !== version).map(([table]) => table);
    received.forEach(([table, version]) => versions.set(table, version));
    if (tables.length) changed(tables);
  });
  // After a response that is no stream (503, 429, a proxy's 502) browsers do not reconnect.
  const opened = source;
  opened.addEventListener("error", () => {
    if (opened.readyState !== EventSource.CLOSED) return; // the browser reconnects
    setTimeout(() => {
      if (opened !== source) return;
      listening = "";
      listen();
    }, STATUS_INTERVAL_MS);
  });
}

function showIsAnswered(isAnswered) {
  document.getElementById("no-answer").hidden = isAnswered;
  document.getElementById("manager-status").hidden = !isAnswered; // nobody knows
}

// The status bar: refreshed on changes and every few seconds, because a manager that dies changes no table.
async function refreshStatusBar() {
  if (document.hidden || !document.getElementById("manager-status")) return;
  try {
    const page = await fetchPage(STATUS_BAR);
    for (const id of ["manager-status", "banner", "nav-import-errors"]) {
      const [old, fresh] = [document.getElementById(id), page?.getElementById(id)];
      if (old && fresh && old.innerHTML !== fresh.innerHTML) morph(old, fresh.innerHTML, "innerHTML");
    }
    if (page?.etag) etags.set(STATUS_BAR, page.etag);
    showIsAnswered(true);
  } catch {
    showIsAnswered(false); // retried with the next interval
  }
}

// Ages (`3 min ago`) and the time that something takes so far are kept current by the server's clock: the client's may be wrong.
const clockSkew = Date.parse(document.querySelector('meta[name="now"]')?.content) - Date.now() || 0;

function ago(at) {
  const seconds = (Date.now() + clockSkew - at) / 1000;
  const size = Math.abs(seconds);
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    if (size >= length) return seconds > 0 ? `${Math.floor(size / length)} ${unit} ago` : `in ${Math.floor(size / length)} ${unit}`;
  }
  return "now";
}

function elapsed(since) {
  const whole = Math.max(Math.floor((Date.now() + clockSkew - since) / 1000), 0);
  for (const [unit, length, smallUnit, small] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
    const rest = Math.floor((whole % length) / small);
    if (whole >= length) return `${Math.floor(whole / length)} ${unit}${rest ? ` ${rest} ${smallUnit}` : ""}`;
  }
  return `${whole} s`;
}

function updateAges(page = document) {
  for (const [kind, write] of [["ago", ago], ["elapsed", elapsed]]) {
    page.querySelectorAll(`time.${kind}`).forEach((time) => {
      const text = write(Date.parse(time.dateTime));
      if (time.textContent !== text) time.textContent = text;
    });
  }
}

document.addEventListener("htmx:configRequest", (event) => {
  if (event.detail.verb === "get") { // empty parameters are left out of the address
    Object.keys(event.detail.parameters).filter((name) => event.detail.parameters[name] === "").forEach((name) => {
      delete event.detail.parameters[name];
    });
  }
  event.detail.headers["X-CSRF-Token"] = document.querySelector('meta[name="csrf-token"]')?.content ?? "";
});
// An expired session leads to the login page: of the whole window, not of a fragment.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (!isLogin(event.detail.xhr.responseURL)) return;
  event.detail.shouldSwap = false;
  goToLogin();
});
document.addEventListener("htmx:afterSwap", () => etags.clear()); // the content was replaced by htmx
document.addEventListener("htmx:afterSettle", listen);
document.addEventListener("bfm:morphed", listen);
document.addEventListener("bfm:changed", (event) => {
  if (event.detail.tables.has("manager") || event.detail.tables.has("import_error")) refreshStatusBar();
});
document.addEventListener("visibilitychange", () => {
  listen();
  if (!document.hidden) {
    scheduleRefresh();
    refreshStatusBar();
  }
});
// Forms with `data-confirm` ask for confirmation; a submitted form is not submitted twice.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.confirm && !window.confirm(form.dataset.confirm)) {
    event.preventDefault();
    return;
  }
  if (form.method === "post") {
    if (form.dataset.submitted && Date.now() - form.dataset.submitted < 5000) event.preventDefault();
    form.dataset.submitted = Date.now();
    form.setAttribute("aria-busy", "true");
  }
});
window.addEventListener("pageshow", () => document.querySelectorAll("form[data-submitted]").forEach((form) => {
  delete form.dataset.submitted;
  form.removeAttribute("aria-busy");
}));

// On a narrow screen the current page or tab may be out of sight in its row.
document.querySelectorAll(".main [aria-current], .tabs [aria-current]").forEach((link) => {
  const row = link.closest("nav");
  row.scrollLeft = link.offsetLeft - (row.clientWidth - link.offsetWidth) / 2;
});
// The newest runs are at the right end.
document.querySelectorAll("[data-scroll-end]").forEach((element) => {
  element.scrollLeft = element.scrollWidth;
});
listen();
setInterval(() => updateAges(), 1000);
setInterval(refreshStatusBar, STATUS_INTERVAL_MS);
