// A task's log. It is followed: when `task_log` changes, the lines after the last one are fetched and appended. A search marks
// its matches, a level hides the lines below it, and a line's number is its address (`#L120`, of a later start `#L2.120`).
// Search and level are in the address, too (`?q=`, `?level=`).
const log = document.getElementById("log");
const follow = document.getElementById("follow");
const tools = document.getElementById("log-tools");
const MAX_LINES = 20000; // on the page; the oldest are removed
const MAX_MATCHES = 5000; // marked
const WRAP = "bfm-log-wrap"; // in localStorage: "off"
const SEARCH_DELAY_MS = 150; // while somebody types

let busy = false;
let again = false;
let lastScrollTop = 0;

const scrollToEnd = () => {
  log.scrollTop = log.scrollHeight;
  lastScrollTop = log.scrollTop;
};

async function fetchLines() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    do {
      again = false;
      const address = new URL(log.dataset.src, location.href);
      address.searchParams.set("after", log.dataset.position);
      const response = await fetch(address, { credentials: "same-origin", cache: "no-store" });
      const position = response.headers.get("X-Log-Position");
      if (!response.ok || !position || position === log.dataset.position) break;
      log.dataset.position = position;
      const last = log.lastElementChild;
      log.insertAdjacentHTML("beforeend", await response.text());
      document.getElementById("log-empty")?.toggleAttribute("hidden", true);
      while (log.childElementCount > MAX_LINES) log.firstElementChild.remove();
      markFrom(last?.isConnected ? last.nextElementSibling : log.firstElementChild);
      if (!pointed) pointToLine(); // one that was not written yet
      if (follow.checked) scrollToEnd();
      again = true; // there may be more than one response holds
    } while (again);
  } catch {
    // server unreachable: retried with the next change
  } finally {
    busy = false;
  }
}

// Search and level

const query = document.getElementById("log-query");
const level = document.getElementById("log-level");
const wrap = document.getElementById("log-wrap");
const count = document.getElementById("log-count");
let matches = []; // <mark>s, from the first line on
let current = -1;

function keepInAddress() {
  const address = new URL(location.href);
  for (const [name, value] of [["q", query.value], ["level", level.value]]) {
    if (value) address.searchParams.set(name, value);
    else address.searchParams.delete(name);
  }
  if (address.href !== location.href) history.replaceState(history.state, "", address);
  const more = document.getElementById("log-more");
  if (!more) return;
  address.searchParams.set("all", "true");
  address.hash = "log-card";
  more.href = address;
}

// Marks the matches in a line's text, which holds no other elements.
function markIn(text, typed) {
  const whole = text.textContent;
  const found = [];
  for (const match of whole.matchAll(typed)) {
    if (matches.length + found.length >= MAX_MATCHES) break;
    found.push(match);
  }
  if (!found.length) return;
  const parts = [];
  let end = 0;
  for (const match of found) {
    const mark = document.createElement("mark");
    mark.textContent = match[0];
    parts.push(whole.slice(end, match.index), mark);
    matches.push(mark);
    end = match.index + match[0].length;
  }
  text.replaceChildren(...parts, whole.slice(end));
}

function markFrom(line) {
  matches = matches.filter((mark) => mark.isConnected);
  if (query.value) {
    const typed = new RegExp(query.value.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "giu");
    for (; line && matches.length < MAX_MATCHES; line = line.nextElementSibling) {
      if (line.matches(".line") && line.checkVisibility()) markIn(line.querySelector(".text"), typed);
    }
  }
  current = matches.findIndex((mark) => mark.classList.contains("current"));
  showCount();
}

function showCount() {
  const more = matches.length >= MAX_MATCHES ? "+" : "";
  const found = `${matches.length.toLocaleString("en")}${more}`;
  if (!query.value) count.textContent = "";
  else if (!matches.length) count.textContent = "No matches";
  else if (current >= 0) count.textContent = `${(current + 1).toLocaleString("en")} of ${found}`;
  else count.textContent = `${found} ${matches.length === 1 ? "match" : "matches"}`;
  for (const id of ["log-previous", "log-next"]) document.getElementById(id).disabled = !matches.length;
}

function search() {
  log.querySelectorAll(".text:has(mark)").forEach((text) => text.replaceChildren(text.textContent));
  log.dataset.level = level.value;
  matches = [];
  markFrom(log.firstElementChild);
  keepInAddress();
}

function goTo(step) {
  if (!matches.length) return;
  matches[current]?.classList.remove("current");
  current = current < 0 && step < 0 ? matches.length - 1 : (current + step + matches.length) % matches.length;
  matches[current].classList.add("current");
  follow.checked = false;
  matches[current].scrollIntoView({ block: "center" });
  showCount();
}

// Links to lines

let pointed = null;

// Shows the line of the address. One that is above those on the page is on the page that shows more.
function pointToLine() {
  pointed?.classList.remove("pointed");
  pointed = null;
  const id = decodeURIComponent(location.hash.slice(1));
  if (!/^L(\d+\.)?\d+$/.test(id)) return;
  pointed = document.getElementById(id);
  if (pointed) {
    if (!pointed.checkVisibility()) {
      level.value = "";
      search();
    }
    pointed.classList.add("pointed");
    follow.checked = false;
    pointed.scrollIntoView({ block: "center" });
  } else if (isBeforeFirst(id)) {
    const more = document.getElementById("log-more");
    if (more) location.replace(`${more.href.split("#")[0]}#${id}`); // with search and level
  }
}

function isBeforeFirst(id) {
  const first = log.querySelector(".line")?.id;
  if (!first) return false;
  const [a, b] = [id, first].map((one) => [1, ...one.slice(1).split(".").map(Number)].slice(-2)); // start, line
  return a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]);
}

function setWrap() {
  log.classList.toggle("no-wrap", !wrap.checked);
  try {
    if (wrap.checked) localStorage.removeItem(WRAP);
    else localStorage.setItem(WRAP, "off");
  } catch {
    // storage is disabled: it holds for this page
  }
}

if (log) {
  tools.hidden = false;
  const given = new URL(location.href).searchParams;
  query.value = given.get("q") ?? "";
  level.value = given.get("level") ?? "";
  if (level.selectedIndex < 0) level.value = "";
  try {
    wrap.checked = localStorage.getItem(WRAP) !== "off";
  } catch {
    wrap.checked = true; // storage is disabled
  }
  setWrap();
  scrollToEnd();
  search();
  if (query.value && !location.hash) goTo(1);
  pointToLine();
  let typing = null;
  query.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(search, SEARCH_DELAY_MS);
  });
  query.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(typing);
    if (new URL(location.href).searchParams.get("q") !== query.value) search();
    goTo(event.shiftKey ? -1 : 1);
  });
  level.addEventListener("change", search);
  wrap.addEventListener("change", setWrap);
  document.getElementById("log-next").addEventListener("click", () => goTo(1));
  document.getElementById("log-previous").addEventListener("click", () => goTo(-1));
  window.addEventListener("hashchange", pointToLine);
  document.addEventListener("bfm:changed", (event) => {
    if (event.detail.tables.has("task_log")) fetchLines();
  });
  follow.addEventListener("change", () => follow.checked && scrollToEnd());
  // Scrolling up stops following, scrolling to the end resumes it. Lines appended before this event move the end down, which is
  // no scrolling by the user. Neither is a line of the address, or a match, that happens to be at the end.
  log.addEventListener("scroll", () => {
    if (log.scrollHeight - log.scrollTop - log.clientHeight < 24) follow.checked = !pointed && current < 0;
    else if (log.scrollTop < lastScrollTop) follow.checked = false;
    lastScrollTop = log.scrollTop;
  });
}
