// Follows a task's log: when `task_log` has changed, the lines after the last one are fetched and put below.
const log = document.getElementById("log");
const follow = document.getElementById("follow");
const MOST_LINES = 20000; // on the page; the oldest go first

let busy = false;
let again = false;
let place = 0; // where it was scrolled to last

const toEnd = () => {
  log.scrollTop = log.scrollHeight;
  place = log.scrollTop;
};

async function more() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    do {
      again = false;
      const address = new URL(log.dataset.src, location.href);
      address.searchParams.set("after", log.dataset.place);
      const answer = await fetch(address, { credentials: "same-origin", cache: "no-store" });
      const reached = answer.headers.get("X-Log-Place");
      if (!answer.ok || !reached || reached === log.dataset.place) break;
      log.dataset.place = reached;
      log.insertAdjacentHTML("beforeend", await answer.text());
      document.getElementById("log-empty")?.classList.add("hidden");
      while (log.childElementCount > MOST_LINES) log.firstElementChild.remove();
      if (follow.checked) toEnd();
      again = true; // there may be more than one answer holds
    } while (again);
  } catch {
    // the server is away; the next change tells
  } finally {
    busy = false;
  }
}

if (log) {
  toEnd();
  document.addEventListener("bfm:changed", (event) => {
    if (event.detail.tables.has("task_log")) more();
  });
  follow.addEventListener("change", () => follow.checked && toEnd());
  // Whoever scrolls up wants to read; whoever comes back to the end wants to follow. Lines that come before this event does
  // leave the end further down, which is nobody's wish.
  log.addEventListener("scroll", () => {
    if (log.scrollHeight - log.scrollTop - log.clientHeight < 24) follow.checked = true;
    else if (log.scrollTop < place) follow.checked = false;
    place = log.scrollTop;
  });
}
