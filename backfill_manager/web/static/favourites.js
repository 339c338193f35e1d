// Favourite DAGs: a star beside each name, kept in a cookie of this browser, which the server reads to list them first.
import { cookie, setCookie } from "./kept.js";

const NAME = "bfm-favourites";
const MAX_LENGTH = 3500; // browsers keep 4096 bytes of a cookie

const read = () => cookie(NAME);

function toggle(id) {
  const wanted = encodeURIComponent(id);
  const listed = read().split(",").filter(Boolean);
  const chosen = listed.includes(wanted) ? listed.filter((one) => one !== wanted) : [...listed, wanted];
  const value = chosen.join(",");
  if (value.length > MAX_LENGTH) return window.alert("There are too many favourites. Remove one first.");
  setCookie(NAME, value);
}

function show(star) {
  const kept = read().split(",").includes(encodeURIComponent(star.dataset.star)); // not where cookies are disabled
  star.setAttribute("aria-pressed", String(kept));
}

document.addEventListener("click", (event) => {
  const star = event.target.closest("[data-star]");
  if (!star) return;
  toggle(star.dataset.star);
  show(star);
});
// What was fetched before a click may arrive after it.
document.addEventListener("bfm:morphed", () => document.querySelectorAll("[data-star]").forEach(show));
