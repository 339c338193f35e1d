// Sets the theme before the first paint: the chosen one, else the system's. The button cycles: system, light, dark.
(function () {
  "use strict";
  const KEY = "bfm-theme";
  const NEXT = { "": "light", light: "dark", dark: "" };
  const LABELS = { "": "system", light: "light", dark: "dark" };
  const chosen = () => {
    try {
      const stored = localStorage.getItem(KEY);
      return stored === "light" || stored === "dark" ? stored : "";
    } catch {
      return ""; // storage is disabled
    }
  };
  const show = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    const button = document.getElementById("theme");
    if (button) button.setAttribute("aria-label", "Theme: " + LABELS[theme]);
  };
  show(chosen());
  document.addEventListener("DOMContentLoaded", () => {
    show(chosen());
    document.getElementById("theme")?.addEventListener("click", () => {
      const theme = NEXT[chosen()];
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // applies to this page only
      }
      show(theme);
    });
  });
})();
