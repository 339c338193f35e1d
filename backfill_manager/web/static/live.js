// Keeps a page as the state is, without a reload.
//
// An element with an id and `data-live="table1 table2"` is made from these tables. When `/api/v1/events` says that one of
// them has changed, its page (or its `data-src`) is fetched again, once for all elements and at most once a second, and the
// element is morphed: what did not change is not touched, so focus, scroll, selection, what is typed and open <details> stay.
// The server sends the content alone, and nothing at all (304) while what it would send is what the page shows already.
// Other modules hear of it: `bfm:changed` (detail.tables) on document, and `bfm:morphed` after a morph.

const EVENTS = "/api/v1/events";
const AT_MOST_EVERY_MS = 1000;
const STANDING = "/fragments/standing";
const STANDING_EVERY_MS = 5000;

let dirty = new Set();
let fetching = false;
let last = 0;
let timer = null;
let source = null;
let listening = "";
const versions = new Map();
const shown = new Map(); // address -> ETag of what the page shows of it, whole
let leftAlone = false; // a morph has passed by something that somebody is at work in

const lives = () => [...document.querySelectorAll("[data-live][id]")];
const tablesOf = (element) => element.dataset.live.split(/\s+/).filter(Boolean);
const also = () => [...document.querySelectorAll("[data-listen]")].flatMap((one) => one.dataset.listen.split(/\s+/));

export function morph(element, fresh, style = "outerHTML") {
  window.Idiomorph.morph(element, fresh, {
    morphStyle: style,
    ignoreActiveValue: true,
    callbacks: {
      beforeAttributeUpdated: (name, node) => !(name === "open" && (node.tagName === "DETAILS" || node.tagName === "DIALOG")),
      beforeNodeMorphed: (old, now) => {
        if (!(old instanceof Element) || !(old.hasAttribute("data-keep") || wasTouched(old))) return true;
        if (old.hasAttribute("data-keep")) return false;
        if (isSame(old, now)) return true; // what was typed is what the server has by now
        leftAlone = true;
        return false;
      },
    },
  });
}

function wasTouched(node) {
  if (node instanceof HTMLInputElement && (node.type === "checkbox" || node.type === "radio")) return node.checked !== node.defaultChecked;
  if (node instanceof HTMLInputElement || node instanceof HTMLTextAreaElement) return node.value !== node.defaultValue;
  return node instanceof HTMLSelectElement && [...node.options].some((one) => one.selected !== one.defaultSelected);
}

const isSame = (old, now) => old.tagName === now.tagName && old.type === now.type && (
  old.type === "checkbox" || old.type === "radio" ? old.checked === now.checked : old.value === now.value
);

const isLogin = (address) => new URL(address, location.href).pathname === "/login";

// The page, or null when it can't be had, or is what is shown already.
async function fetched(address) {
  const headers = { "X-Live": "1" };
  if (shown.has(address)) headers["If-None-Match"] = shown.get(address);
  const answer = await fetch(address, { headers, credentials: "same-origin", cache: "no-store" });
  if (answer.redirected && isLogin(answer.url)) location.reload();
  if (answer.status >= 500 || answer.status === 429) throw new Error(`${answer.status}`); // a passing trouble: once more later
  if (!answer.ok) return null;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  page.etag = answer.headers.get("ETag");
  tick(page);
  return page;
}

// What is on the page now, with the tables that have changed, is fetched and put in its place; with it everything else that
// is made by the same address, so that the whole of it is as the server told.
export async function refresh(tables) {
  const bySource = new Map();
  for (const one of lives()) {
    const address = one.dataset.src || location.href;
    bySource.set(address, [...(bySource.get(address) ?? []), one]);
  }
  for (const [address, elements] of bySource) {
    if (!elements.some((one) => tablesOf(one).some((table) => tables.has(table)))) continue;
    const page = await fetched(address);
    if (!page) continue;
    if (!elements[0].dataset.src && location.href !== address) {
      tables.forEach((table) => dirty.add(table)); // meanwhile this page shows something else (a search): once more for that
      continue;
    }
    leftAlone = false;
    for (const element of elements) {
      const fresh = page.getElementById(element.id);
      if (!fresh || !element.isConnected || element.outerHTML === fresh.outerHTML) continue;
      morph(element, fresh);
      const now = document.getElementById(element.id);
      if (now && window.htmx) window.htmx.process(now);
      document.dispatchEvent(new CustomEvent("bfm:morphed", { detail: { id: element.id } }));
    }
    const isInUse = elements.some((one) => one.contains(document.activeElement) && "value" in document.activeElement);
    if (page.etag && !leftAlone && !isInUse) shown.set(address, page.etag);
    else shown.delete(address);
  }
  tick();
}

async function work() {
  timer = null;
  if (fetching || document.hidden || !dirty.size) return;
  const tables = dirty;
  dirty = new Set();
  fetching = true;
  last = performance.now();
  try {
    await refresh(tables);
  } catch {
    tables.forEach((table) => dirty.add(table)); // the server is away for a moment: once more later
  } finally {
    fetching = false;
  }
  if (dirty.size) soon();
}

function soon() {
  if (timer === null) timer = setTimeout(work, Math.max(0, last + AT_MOST_EVERY_MS - performance.now()));
}

export function changed(tables) {
  tables.forEach((table) => dirty.add(table));
  document.dispatchEvent(new CustomEvent("bfm:changed", { detail: { tables: new Set(tables) } }));
  soon();
}

// A browser keeps some six connections to one server for all its tabs together, and a stream takes one for good: so a tab
// that nobody sees gives its own back, or the seventh could not be loaded.
function listen() {
  const wanted = document.hidden ? "" : [...new Set([...lives().flatMap(tablesOf), ...also()])].sort().join(",");
  if (wanted === listening) return;
  listening = wanted;
  source?.close();
  if (!wanted) return;
  source = new EventSource(`${EVENTS}?topics=${encodeURIComponent(wanted)}`);
  // The first event, also after a break, has every table: what is newer than what was shown is fetched.
  source.addEventListener("changed", (event) => {
    const told = Object.entries(JSON.parse(event.data).tables);
    const tables = told.filter(([table, version]) => versions.get(table) !== version).map(([table]) => table);
    told.forEach(([table, version]) => versions.set(table, version));
    if (tables.length) changed(tables);
  });
  // After an answer that is no stream (503, 429, a proxy's 502) a browser gives up for good: once more in a while.
  const mine = source;
  mine.addEventListener("error", () => {
    if (mine.readyState !== EventSource.CLOSED) return; // it tries by itself
    setTimeout(() => {
      if (mine !== source) return;
      listening = "";
      listen();
    }, STANDING_EVERY_MS);
  });
}

// The head of the page: at a change of what it tells, and every few seconds, as a manager that dies changes no table.
async function stand() {
  if (document.hidden || !document.getElementById("manager-light")) return;
  try {
    const page = await fetched(STANDING);
    for (const id of ["manager-light", "banner", "nav-import-errors"]) {
      const [old, fresh] = [document.getElementById(id), page?.getElementById(id)];
      if (old && fresh && old.innerHTML !== fresh.innerHTML) morph(old, fresh.innerHTML, "innerHTML");
    }
    if (page?.etag) shown.set(STANDING, page.etag);
  } catch {
    // the server is away; the next look tells
  }
}

// `3 min ago` goes on by itself, by the server's clock: this one may be wrong.
const ahead = Date.parse(document.querySelector('meta[name="now"]')?.content) - Date.now() || 0;

function ago(at) {
  const seconds = (Date.now() + ahead - at) / 1000;
  const size = Math.abs(seconds);
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    if (size >= length) return seconds > 0 ? `${Math.floor(size / length)} ${unit} ago` : `in ${Math.floor(size / length)} ${unit}`;
  }
  return "now";
}

function tick(page = document) {
  page.querySelectorAll("time.ago").forEach((one) => {
    const text = ago(Date.parse(one.dateTime));
    if (one.textContent !== text) one.textContent = text;
  });
}

document.addEventListener("htmx:configRequest", (event) => {
  if (event.detail.verb === "get") { // what is not chosen is not in the address
    Object.keys(event.detail.parameters).filter((name) => event.detail.parameters[name] === "").forEach((name) => {
      delete event.detail.parameters[name];
    });
  }
  event.detail.headers["X-CSRF-Token"] = document.querySelector('meta[name="csrf-token"]')?.content ?? "";
});
// Whose session is over is led to the login: by the whole page, not by a part of it.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (!isLogin(event.detail.xhr.responseURL)) return;
  event.detail.shouldSwap = false;
  location.reload();
});
document.addEventListener("htmx:afterSwap", () => shown.clear()); // from here on the page shows what somebody else put there
document.addEventListener("htmx:afterSettle", listen);
document.addEventListener("bfm:morphed", listen);
document.addEventListener("bfm:changed", (event) => {
  if (event.detail.tables.has("manager") || event.detail.tables.has("import_error")) stand();
});
document.addEventListener("visibilitychange", () => {
  listen();
  if (!document.hidden) {
    soon();
    stand();
  }
});
// A form with `data-confirm` asks first; one that was sent is not sent twice.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.confirm && !window.confirm(form.dataset.confirm)) {
    event.preventDefault();
    return;
  }
  if (form.method === "post") {
    if (form.dataset.sent && Date.now() - form.dataset.sent < 5000) event.preventDefault();
    form.dataset.sent = Date.now();
    form.setAttribute("aria-busy", "true");
  }
});
window.addEventListener("pageshow", () => document.querySelectorAll("form[data-sent]").forEach((form) => {
  delete form.dataset.sent;
  form.removeAttribute("aria-busy");
}));

// What is newest stands at the right end.
document.querySelectorAll("[data-scroll-end]").forEach((one) => {
  one.scrollLeft = one.scrollWidth;
});
listen();
setInterval(() => tick(), 1000);
setInterval(stand, STANDING_EVERY_MS);
