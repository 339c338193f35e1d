"""Checks that hold for the HTML of every page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from backfill_manager.model.records import TABLES

VOID = {"meta", "link", "input", "br", "hr", "img", "source", "wbr", "col"}
WITHIN_TEXT = {"b", "a", "code", "time", "span", "svg", "use"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    parts: list[Element | str] = field(default_factory=list)

    @property
    def children(self) -> list[Element]:
        return [one for one in self.parts if isinstance(one, Element)]

    @property
    def text(self) -> str:
        return "".join(one for one in self.parts if isinstance(one, str))

    def find(self, tag: str) -> list[Element]:
        return [one for child in self.children for one in ([child] if child.tag == tag else []) + child.find(tag)]

    def all(self) -> list[Element]:
        return [one for child in self.children for one in [child, *child.all()]]

    @property
    def whole_text(self) -> str:
        """As a person reads it: in order, with single spaces."""
        return " ".join("".join(self._texts()).split())

    def _texts(self) -> Iterator[str]:
        for one in self.parts:
            if isinstance(one, str):
                yield one
            else:
                yield from one._texts()
                yield "" if one.tag in WITHIN_TEXT else " "


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Element("document", {})
        self._open = [self.root]
        self.wrong: list[str] = []
        self.feed(text)
        self.close()
        if len(self._open) > 1:
            self.wrong.append(f"never closed: {', '.join(one.tag for one in self._open[1:])}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, dict(attrs))
        self._open[-1].parts.append(made)
        if tag not in VOID:
            self._open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].parts.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if self._open[-1].tag != tag:
            self.wrong.append(f"</{tag}> closes <{self._open[-1].tag}> at {self.getpos()}")
            return
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].parts.append(data)

    @property
    def links(self) -> list[str]:
        return [str(one.attributes["href"]) for one in self.root.find("a") if one.attributes.get("href")]

    @property
    def forms(self) -> list[Element]:
        return self.root.find("form")


def wrongs(page: Page) -> list[str]:
    """Whatever breaks the content policy, the promises to `live.js`, or what a keyboard or a screen reader needs."""
    found = list(page.wrong)
    elements = page.root.all()
    for one in elements:
        found += [
            f"inline {name} on <{one.tag}>" for name in one.attributes if name == "style" or name.startswith("on")
        ]
        if one.tag == "style" or (one.tag == "script" and (one.text.strip() or not one.attributes.get("src"))):
            found.append(f"inline <{one.tag}>")
        for name in ("src", "href"):
            if str(one.attributes.get(name) or "").startswith(("http:", "https:", "//", "javascript:")):
                found.append(f"{one.attributes[name]} is not ours")
        if "data-live" in one.attributes:
            if not one.attributes.get("id"):
                found.append(f"live <{one.tag}> without an id")
            unknown = set(str(one.attributes["data-live"]).split()) - set(TABLES)
            found += [f"live on {', '.join(unknown)}, which is no table"] if unknown else []
    ids = Counter(one.attributes["id"] for one in elements if one.attributes.get("id"))
    found += [f"id {name!r} {n} times" for name, n in ids.items() if n > 1]
    found += _unnamed(page, set(ids))
    for form in page.forms:
        names = {one.attributes.get("name") for one in form.find("input")}
        if form.attributes.get("method") == "post" and form.attributes.get("action") != "/login":
            found += [] if "csrf_token" in names else [f"{form.attributes.get('action')} has no CSRF token"]
    found += [] if len(page.root.find("h1")) <= 1 else ["more than one h1"]
    return found


def _unnamed(page: Page, ids: set[str | None]) -> list[str]:
    """Links, buttons and fields that say nothing."""
    found = []
    labelled = {one.attributes.get("for") for one in page.root.find("label")}
    inside = {id(field) for label in page.root.find("label") for field in label.all()}
    for one in page.root.all():
        label = one.attributes.get("aria-label") or one.attributes.get("title")
        if one.tag in ("a", "button") and not label and not one.whole_text:
            icons = [child.attributes.get("aria-label") for child in one.all()]
            found += [] if any(icons) else [f"<{one.tag} {one.attributes.get('href', '')}> says nothing"]
        if one.tag in ("input", "select", "textarea") and one.attributes.get("type") != "hidden":
            named = label or one.attributes.get("id") in labelled or id(one) in inside
            found += [] if named else [f"field {one.attributes.get('name')} has no label"]
    found += [f"label for {name!r}, which is not there" for name in labelled - ids - {None}]
    return found
