"""The web UI: Jinja2 templates, htmx and small ES modules, all served from here; no build, no inline scripts, no CDN.

`pages` has the handlers, a file for each resource, `page` what each of them gets, `router` all together, `svg` the layout of
pictures. May import everything but `cli`; reads through `queries`, submits requests through `api.submit`. CONTRIBUTING.md
("A page") says what a page consists of.
"""
