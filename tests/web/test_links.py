"""Every link of every page leads to a page, whatever has been asked for before."""

from __future__ import annotations

import random
import re
from collections import Counter
from urllib.parse import parse_qsl, urldefrag, urljoin, urlsplit

import pytest
from support.page_checks import Page, wrongs
from support.page_client import browser_of
from support.random_requests import RandomRequests

ADDRESSES = ("href", "src", "data-href", "data-src")
OF_ONE_KIND = 3  # pages of which only the ids and values in the address differ


def kind_of(address: str) -> tuple[str, ...]:
    url = urlsplit(address)
    path = re.sub(r"/(dags|runs|tasks|backfills|items|requests|day)/[^/]+", r"/\1/*", url.path)
    return path, *sorted(name for name, _ in parse_qsl(url.query, keep_blank_values=True))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 60))])
def test_every_link_leads_to_a_page(seed: int) -> None:
    requests, rnd = RandomRequests(seed), random.Random(seed)
    requests.play()
    browser = browser_of(requests.manager.store, requests.manager.clock)
    to_do, seen, kinds = {"/": ""}, set[str](), Counter[tuple[str, ...]]()
    while to_do:
        address = rnd.choice(sorted(to_do))
        found_on = to_do.pop(address)
        seen.add(address)
        kinds[kind_of(address)] += 1
        if kinds[kind_of(address)] > OF_ONE_KIND:
            continue
        answer = browser.get(address)
        assert answer.status_code in (200, 303, 307, 308), f"{address}, a link of {found_on}: {answer.status_code}"
        links = [answer.headers["location"]] if answer.status_code != 200 else []
        if answer.headers.get("content-type", "").startswith("text/html"):
            page = Page(answer.text)
            assert wrongs(page) == [], address
            links += [value for one in page.root.all() for name in ADDRESSES if (value := one.attributes.get(name))]
        within = (urldefrag(urljoin(address, link))[0] for link in links if "/static/" not in link)
        to_do |= {one: address for one in within if one.startswith("/") and one not in seen}
    assert len(kinds) > 30
