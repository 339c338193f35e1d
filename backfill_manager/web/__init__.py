"""The pages: Jinja2 templates, htmx and small ES modules, all served from here; no build, nothing inline, no CDN.

May import everything but `cli`; reads through `views/`, asks through `api.submit`. A page is three things:

1. A handler in a file of its noun, on a router that `pages.py` gathers. A plain `def`, as it reads the store::

       router = page_router()

       @router.get("/pools")
       def pools(visit: VisitOf) -> Response:
           return visit.page("pools.html", pools=list_pools(visit.store))

       @router.post("/pools/{name}")
       async def set_pool(visit: OperatorVisit, name: str, slots: Annotated[int, Form()],
                          back: Annotated[str, Form()] = "/pools") -> Response:
           return await visit.ask(POOL_SET, {"name": name, ...}, back=back)

   `context` has `store`, `now`, `app` (with `cached_by_version` for what is dear), `user`. Ids come in a path as
   `links.from_segment(name)`, and go out by `to("pools", name, tab="all")` (a run's by `to_run(dag_id, run_id)`), in
   templates too. An error of `errors` that is raised becomes a page with its status. `context.ask` waits three seconds, then
   leads back to `back` with `?asked=<request id>`: `base.html` tells there what the manager said, or that the request waits.
2. A template in `templates/` that begins with ``{% extends "base.html" %}``, sets ``{% block title %}`` and
   ``{% block content %}``, and has `nav` of the header's place it belongs to: ``{% set nav = "pools" %}``. Macros are in
   `macros.html`: `state(...)`, `progress(counts)`, `csrf_field()`, `empty(...)`; filters in `words.py`: `instant`, `ago`,
   `duration`, `number`, `day`, `plural`. Show forms and buttons only `{% if may_change %}`. A POST form holds
   ``{{ m.csrf_field(csrf) }}`` and ``{{ m.back_field(here) }}``; htmx sends the token by itself.
3. What shall be live bears an id and the names of the tables it is made from::

       <section id="pools" data-live="pool task_instance">

   `live.js` listens to `/api/v1/events`, fetches the page again (or `data-src`) at most once a second, and morphs the
   sections that have changed in place: focus, scroll, what is typed and open `<details>` stay.
   Such an element is always on its page, whatever there is to show: what is there only at times stands inside of it
   (`<div id="reasons" class="live" data-live="backfill_item">{% if reasons %}...`), or it could never appear by itself.
   What a script has drawn into it bears `data-keep` and is left alone.

Inline scripts and styles are refused by the content policy: widths of bars are SVG attributes, colours are classes
(`s-success`), widths of a table's columns classes too. A module goes to `static/`, and into the page by
``{% block scripts %}<script type="module" src="{{ static('x.js') }}"></script>{% endblock %}``.
A new page is added to `tests/web/test_every_page.py` (its list of addresses), which checks all of this.
"""
