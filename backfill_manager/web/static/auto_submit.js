// Submits a form when a field with `data-submit` (or in a form with it) changes: a year, a filter.
//
// Stepping through a <select> by keyboard fires a change per step; there Enter or leaving the list submits. The field keeps the
// keyboard focus on the next page.

import { inTab, keepInTab } from "./kept.js";

const FOCUS_KEY = "bfm-focus"; // holds the selector of the field
let byKeyboard = false; // the last input was a key, not a pointer
let stepping = false; // the key steps through a list
let pending = null; // a <select> that was stepped through and is not submitted yet

const isSelect = (field) => field instanceof HTMLSelectElement && field.closest("[data-submit]");

function submit(field) {
  pending = null;
  if (byKeyboard) keepInTab(FOCUS_KEY, `[name="${field.name}"]${field.type === "checkbox" ? `[value="${field.value}"]` : ""}`);
  field.form?.requestSubmit();
}

function restoreFocus() {
  const selector = inTab(FOCUS_KEY);
  keepInTab(FOCUS_KEY, "");
  if (selector) document.querySelector(selector)?.focus({ preventScroll: true });
}

document.addEventListener("pointerdown", () => {
  byKeyboard = stepping = false;
}, true);
document.addEventListener("keydown", (event) => {
  byKeyboard = true;
  stepping = !event.altKey && (/^(Arrow|Page|Home$|End$)/.test(event.key) || (event.key.length === 1 && event.key !== " "));
  if (event.key === "Enter" && pending === event.target) {
    event.preventDefault();
    submit(pending);
  }
}, true);
document.addEventListener("change", (event) => {
  if (!event.target.closest("[data-submit]")) return;
  if (stepping && isSelect(event.target)) pending = event.target;
  else submit(event.target);
});
document.addEventListener("focusout", (event) => {
  if (pending === event.target) submit(pending);
});
// The content was replaced in place: the focus is where it was.
document.addEventListener("htmx:afterSettle", () => keepInTab(FOCUS_KEY, ""));
restoreFocus();
