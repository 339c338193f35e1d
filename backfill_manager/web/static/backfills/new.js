// *New backfill*: ranges are filled in without a round trip, and a field that is wrong says so to readers of screens too.
// The preview itself is htmx's: see the form.

const form = document.getElementById("ask");

form?.addEventListener("click", (event) => {
  const button = event.target.closest('button[name="quick"]');
  if (!button) return;
  event.preventDefault();
  const [first, last] = button.value.split("/");
  for (const [name, value] of [["from_date", first], ["from_time", ""], ["to_date", last], ["to_time", ""]]) form.elements[name].value = value;
  form.elements.from_date.dispatchEvent(new Event("input", { bubbles: true }));
});

document.addEventListener("htmx:afterSettle", () => {
  for (const told of document.querySelectorAll("[id^='wrong-']")) {
    const input = document.getElementById(told.id.replace("wrong-", "f-"));
    if (!input) continue;
    const wrong = told.textContent.trim() !== "";
    if (input.matches("input, select, textarea")) wrong ? input.setAttribute("aria-invalid", "true") : input.removeAttribute("aria-invalid");
    input.closest(".field, fieldset")?.classList.toggle("is-wrong", wrong);
    if (wrong) input.closest("details")?.setAttribute("open", "");
  }
});
