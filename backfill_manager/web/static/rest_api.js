// The REST API's description as Swagger UI shows it. Only calls that read can be tried here: they go with the session of the page.
const place = document.getElementById("swagger-ui");
const system = matchMedia("(prefers-color-scheme: dark)");

function followTheme() {
  const theme = document.documentElement.dataset.theme;
  document.documentElement.classList.toggle("dark-mode", theme ? theme === "dark" : system.matches);
}

followTheme();
system.addEventListener("change", followTheme);
new MutationObserver(followTheme).observe(document.documentElement, { attributeFilter: ["data-theme"] });
SwaggerUIBundle({
  url: place.dataset.url,
  domNode: place,
  supportedSubmitMethods: ["get"],
  docExpansion: "none",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  filter: true,
  validatorUrl: null, // asks no other server
});
