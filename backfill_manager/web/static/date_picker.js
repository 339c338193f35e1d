// The calendar beside every field for a date. The field itself is text, so that a time, an offset, or anything that the command line takes
// can be typed; the browser's own picker writes into it. Dates have no zone here: the server reads them in the one that the page says.

const field = (picker) => document.getElementById(picker.dataset.picks);
const isList = (target) => target instanceof HTMLTextAreaElement;
const dayOf = (id) => document.getElementById(id)?.value.trim().match(/^\d{4}-\d\d-\d\d/)?.[0] ?? "";

// What the picker begins with, and which days its range leaves.
function prepare(picker) {
  const withTime = picker.type === "datetime-local";
  const typed = field(picker).value.trim().match(/^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d))?/);
  picker.value = typed && !isList(field(picker)) ? typed[1] + (withTime ? `T${typed[2] ?? "00:00"}` : "") : "";
  picker.min = picker.dataset.after ? dayOf(picker.dataset.after) : "";
  picker.max = picker.dataset.before ? dayOf(picker.dataset.before) : "";
}

// Midnight alone is the date: `2013-01-05T00:00` is written as `2013-01-05`. A time that was typed beside a day stays.
function write(picker) {
  const target = field(picker);
  const picked = picker.value.replace(/T00:00$/, "");
  if (!picked) return;
  if (isList(target)) target.value = [...target.value.split(/[\s,;]+/).filter(Boolean), picked].filter((one, n, all) => all.indexOf(one) === n).join("\n");
  else target.value = picked;
  for (const name of ["input", "change"]) target.dispatchEvent(new Event(name, { bubbles: true }));
}

document.addEventListener("focusin", (event) => event.target.dataset?.picks && prepare(event.target));
document.addEventListener("click", (event) => {
  if (!event.target.dataset?.picks) return;
  prepare(event.target);
  try {
    event.target.showPicker();
  } catch (error) {
    if (error.name !== "NotAllowedError" && error.name !== "NotSupportedError") throw error; // there the field itself opens it, or is typed into
  }
});
// The picker's own events are no change of the form.
for (const name of ["input", "change"]) document.addEventListener(name, (event) => {
  if (!event.target.dataset?.picks) return;
  event.stopPropagation();
  if (name === "change") write(event.target);
}, true);

const show = () => document.querySelectorAll(".pick[hidden]").forEach((place) => {
  const picker = document.createElement("input");
  picker.type = place.dataset.type;
  picker.title = "Pick a date";
  picker.setAttribute("aria-label", picker.title);
  const { field: picks, after = "", before = "" } = place.dataset;
  Object.assign(picker.dataset, { picks, after, before });
  place.append(picker);
  place.hidden = false;
});
document.addEventListener("htmx:afterSettle", show);
document.addEventListener("bfm:morphed", show);
show();
