// Before the first paint: the theme that was chosen, else the system's. The button goes round: system, light, dark.
(function () {
  "use strict";
  const KEY = "bfm-theme";
  const NEXT = { "": "light", light: "dark", dark: "" };
  const WORDS = { "": "as the system has it", light: "light", dark: "dark" };
  const chosen = () => {
    try {
      const kept = localStorage.getItem(KEY);
      return kept === "light" || kept === "dark" ? kept : "";
    } catch {
      return ""; // storage is switched off
    }
  };
  const show = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    const button = document.getElementById("theme");
    if (button) button.setAttribute("aria-label", "Theme: " + WORDS[theme]);
  };
  show(chosen());
  document.addEventListener("DOMContentLoaded", () => {
    show(chosen());
    document.getElementById("theme")?.addEventListener("click", () => {
      const theme = NEXT[chosen()];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // it is kept for this page only
      }
      show(theme);
    });
  });
})();
