// Follows a task's log: when `task_log` changes, the lines after the last one are fetched and appended.
const log = document.getElementById("log");
const follow = document.getElementById("follow");
const MAX_LINES = 20000; // on the page; the oldest are removed

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
      log.insertAdjacentHTML("beforeend", await response.text());
      document.getElementById("log-empty")?.classList.add("hidden");
      while (log.childElementCount > MAX_LINES) log.firstElementChild.remove();
      if (follow.checked) scrollToEnd();
      again = true; // there may be more than one response holds
    } while (again);
  } catch {
    // server unreachable: retried with the next change
  } finally {
    busy = false;
  }
}

if (log) {
  scrollToEnd();
  document.addEventListener("bfm:changed", (event) => {
    if (event.detail.tables.has("task_log")) fetchLines();
  });
  follow.addEventListener("change", () => follow.checked && scrollToEnd());
  // Scrolling up stops following, scrolling to the end resumes it. Lines appended before this event move the end down, which is
  // no scrolling by the user.
  log.addEventListener("scroll", () => {
    if (log.scrollHeight - log.scrollTop - log.clientHeight < 24) follow.checked = true;
    else if (log.scrollTop < lastScrollTop) follow.checked = false;
    lastScrollTop = log.scrollTop;
  });
}
