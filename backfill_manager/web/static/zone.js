// The zone of all times on pages: each DAG's own, UTC, or the browser's. The server writes them, and reads the choice from a cookie:
// nothing, `utc`, or `mine:Europe/Berlin`.
const NAME = "bfm-zone";
const mine = `mine:${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
const select = document.getElementById("zone");

const chosen = () => document.cookie.split("; ").find((one) => one.startsWith(`${NAME}=`))?.slice(NAME.length + 1) ?? "";

function choose(value) {
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `${NAME}=${value}; path=/; max-age=${value ? 31536000 : 0}; samesite=lax${secure}`;
  if (chosen() === value) location.reload(); // not where cookies are disabled
}

if (select) {
  const [mode] = chosen().split(":");
  if (mode === "mine" && chosen() !== mine) choose(mine); // the browser has travelled
  select.addEventListener("change", () => choose(select.value === "mine" ? mine : select.value));
}
