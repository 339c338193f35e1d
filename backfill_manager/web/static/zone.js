// The zone of all times on pages: each DAG's own, UTC, or the browser's. The server writes them, and reads the choice from a cookie:
// nothing, `utc`, or `mine:Europe/Berlin`.
import { cookie, setCookie } from "./kept.js";

const NAME = "bfm-zone";
const mine = `mine:${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
const select = document.getElementById("zone");

const chosen = () => cookie(NAME);

function choose(value) {
  setCookie(NAME, value);
  if (chosen() === value) location.reload(); // not where cookies are disabled
}

if (select) {
  const [mode] = chosen().split(":");
  if (mode === "mine" && chosen() !== mine) choose(mine); // the browser has travelled
  select.addEventListener("change", () => choose(select.value === "mine" ? mine : select.value));
}
