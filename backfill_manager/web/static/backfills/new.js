// New backfill: quick ranges without a round trip, and `aria-invalid` on fields with an error. The dry run is htmx's: see the form.

const form = document.getElementById("create-form");

form?.addEventListener("click", (event) => {
  const button = event.target.closest('button[name="quick"]');
  if (!button) return;
  event.preventDefault();
  const [first, last] = button.value.split("/");
  for (const [name, value] of [["start_date", first], ["start_time", ""], ["end_date", last], ["end_time", ""]]) form.elements[name].value = value;
  form.elements.start_date.dispatchEvent(new Event("input", { bubbles: true }));
});

document.addEventListener("htmx:afterSettle", () => {
  for (const message of document.querySelectorAll("[id^='error-']")) {
    const input = document.getElementById(message.id.replace("error-", "f-"));
    if (!input) continue;
    const isInvalid = message.textContent.trim() !== "";
    if (input.matches("input, select, textarea")) isInvalid ? input.setAttribute("aria-invalid", "true") : input.removeAttribute("aria-invalid");
    input.closest(".field, fieldset")?.classList.toggle("is-invalid", isInvalid);
    if (isInvalid) input.closest("details")?.setAttribute("open", "");
  }
});
