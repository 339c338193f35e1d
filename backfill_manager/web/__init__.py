"""The web UI: Jinja2 templates, htmx and small ES modules, all served from here; no build, no inline scripts, no CDN.

May import everything but `cli`; reads through `queries`, submits requests through `api.submit`. A page is three things:

1. A handler in the module of its noun in `pages/`, on a router that `router.py` includes. A plain `def`, as it reads the store::

       router = page_router()

       @router.get("/pools")
       def pools(context: ViewerContext) -> Response:
           return context.page("pools.html", pools=list_pools(context.store))

       @router.post("/pools/{name}")
       async def set_slots(context: OperatorContext, name: str, slots: Annotated[int, Form()],
                           back: Annotated[str, Form()] = "/pools") -> Response:
           return await context.submit(POOL_SET, {"name": name, ...}, back=back)

   `context` has `store`, `now`, `app` (with `cached_by_version` for costly reads) and `user`. Ids come in a path as
   `links.from_segment(name)`, and go out by `to("pools", name, tab="all")` (a run's by `to_run(dag_id, run_id)`), in
   templates too. An error of `errors` that is raised becomes a page with its status. `context.submit` waits three seconds for
   the response and redirects to `back` with `?request_id=...`: `base.html` shows the response there, or that it is pending.
   Fields of the backfill forms come from `schemas.commands` (`pages/form_fields.py`): a new setting appears by itself.
2. A template in `templates/` that begins with ``{% extends "base.html" %}``, sets ``{% block title %}`` and
   ``{% block content %}``, and names its entry of the navigation: ``{% set nav = "pools" %}``. Macros are in
   `macros.html`: `state(...)`, `progress(counts)`, `csrf_field()`, `empty(...)`; filters in `filters.py`: `instant`, `ago`,
   `duration`, `number`, `day`, `plural`. Show forms and buttons only `{% if may_change %}`. A POST form holds
   ``{{ m.csrf_field(csrf) }}`` and ``{{ m.back_field(here) }}``; htmx sends the token by itself.
3. Live elements: each has an id and the names of the tables it depends on::

       <section id="pools" data-live="pool task_instance">

   `live.js` listens to `/api/v1/events`, fetches the page again (or `data-src`) at most once a second, and morphs the
   elements that have changed: focus, scroll, typed text and open `<details>` stay.
   Such an element is always on its page, even when it is empty: what is shown only at times is inside it
   (`<div id="reasons" class="live" data-live="backfill_item">{% if reasons %}...`), or it could never appear by itself.
   Elements drawn by a script have `data-keep` and are left alone.

The content security policy refuses inline scripts and styles: widths of bars are SVG attributes, colours are classes
(`s-success`). A module goes to `static/`, and into the page by
``{% block scripts %}<script type="module" src="{{ static('x.js') }}"></script>{% endblock %}``.
A new page is added to `tests/web/test_every_page.py` (its list of addresses), which checks all of this.

Texts: verbs on buttons ("Create backfill"), nouns as headings ("Attempts"), states as the field calls them.
"""
