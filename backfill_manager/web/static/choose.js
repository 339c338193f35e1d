// A form with `data-submit` (or a field of it) asks for something else when that field changes: a year, a filter.
//
// In a list that is gone through by keys each step is a change; there Enter sends it, or leaving the list. Who came by keys
// finds themselves at the same field of the next page.

const STOOD = "bfm-stood"; // the field, as a selector
let byKeys = false; // the last thing that was done was a key's, not a pointer's
let stepping = false; // and it was one that steps through a list
let waiting = null; // the list that was stepped through and is not sent yet

const chooses = (field) => field instanceof HTMLSelectElement && field.closest("[data-submit]");

function send(field) {
  waiting = null;
  if (byKeys) {
    try {
      sessionStorage.setItem(STOOD, `[name="${field.name}"]${field.type === "checkbox" ? `[value="${field.value}"]` : ""}`);
    } catch {
      // storage is switched off
    }
  }
  field.form?.requestSubmit();
}

function standAgain() {
  try {
    const stood = sessionStorage.getItem(STOOD);
    sessionStorage.removeItem(STOOD);
    if (stood) document.querySelector(stood)?.focus({ preventScroll: true });
  } catch {
    // storage is switched off
  }
}

document.addEventListener("pointerdown", () => {
  byKeys = stepping = false;
}, true);
document.addEventListener("keydown", (event) => {
  byKeys = true;
  stepping = !event.altKey && (/^(Arrow|Page|Home$|End$)/.test(event.key) || (event.key.length === 1 && event.key !== " "));
  if (event.key === "Enter" && waiting === event.target) {
    event.preventDefault();
    send(waiting);
  }
}, true);
document.addEventListener("change", (event) => {
  if (!event.target.closest("[data-submit]")) return;
  if (stepping && chooses(event.target)) waiting = event.target;
  else send(event.target);
});
document.addEventListener("focusout", (event) => {
  if (waiting === event.target) send(waiting);
});
// A part of this page came in place of a new one: nobody has lost their place.
document.addEventListener("htmx:afterSettle", () => {
  try {
    sessionStorage.removeItem(STOOD);
  } catch {
    // storage is switched off
  }
});
standAgain();
