"""Users at browsers: Debian's Chromium driven by Playwright, and every error of the pages that they visited.

Nothing is downloaded. Without a Chromium these tests are skipped, with a line that says so; in CI that is a failure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.find_browser import CI

try:
    from playwright.sync_api import (
        Browser,
        BrowserContext,
        ConsoleMessage,
        Page,
        Response,
        Route,
        expect,
        sync_playwright,
    )
except ModuleNotFoundError:
    if CI:
        raise
    pytest.skip(
        "Playwright is not installed (pip install -e '.[test]'): no test in a browser.", allow_module_level=True
    )

__all__ = ["Route", "User", "expect", "launched", "screenshots"]

REPOSITORY = Path(__file__).parents[2]
AXE = REPOSITORY / "tests" / "browser" / "vendor" / "axe-4.12.1.min.js"
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
# After which a story gives up, on a machine that does much else at once; no page should take a hundredth of it.
EXPECT_MS, ACTION_MS, LAUNCH_MS = 60_000, 60_000, 180_000

expect.set_options(timeout=EXPECT_MS)


@contextmanager
def launched(executable: str) -> Iterator[Browser]:
    """Headless; without its sandbox, which it can't have as root or in many a container: the pages are our own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, timeout=LAUNCH_MS,
            args=["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"],
        )  # fmt: skip
        yield browser
        browser.close()


def screenshots() -> Path:
    """Where pictures are kept; in no repository."""
    place = Path(os.environ.get("BFM_SCREENSHOTS") or REPOSITORY / "build" / "screenshots")
    place.mkdir(parents=True, exist_ok=True)
    return place


@dataclass
class User:
    """A user with a browser of their own: own cookies, own settings. `page` is what they look at.

    Everything that goes wrong on their pages is noted: what the console tells as an error or a warning (a breach of the
    content policy is one), exceptions, files that did not come. Any fails the test when they go; an answer that the story is
    about (`allows`: 409, 422) is none.
    """

    context: BrowserContext
    page: Page = field(init=False)
    complaints: list[str] = field(default_factory=list)
    allows: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.context.set_default_timeout(ACTION_MS)
        self.page = self.context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(f"{self.page.url}: {error}"))
        self.page.on("requestfailed", self._did_not_come)
        self.page.on("response", self._came)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            status = re.search(r"responded with a status of (\d+)", message.text)
            if not (status and int(status[1]) in self.allows):
                self.complaints.append(f"{self.page.url}: console: {message.text}")

    def _did_not_come(self, request: Any) -> None:
        # Going to another page ends what this one was still waiting for.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"{self.page.url}: {request.method} {request.url}: {request.failure}")

    def _came(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self.allows:
            self.complaints.append(f"{self.page.url}: {response.request.method} {response.url}: {response.status}")

    def goes(self, address: str) -> Page:
        self.page.goto(address)
        return self.page

    # -- what must be true of every page ----------------------------------------------------------------------------

    def barriers(self, *rules: str) -> list[str]:
        """What axe-core calls serious or critical; of these rules only, if any are given."""
        page = self.page
        if not page.evaluate("'axe' in window"):
            page.evaluate(AXE.read_text())  # by the debugger's door, which no content policy closes
        options: dict[str, Any] = {"resultTypes": ["violations"]}
        if rules:
            options["runOnly"] = {"type": "rule", "values": rules}
        found = page.evaluate("options => axe.run(options).then(report => report.violations)", options)
        return [
            f"{one['id']} ({one['impact']}): {one['help']}: {'; '.join(node['html'][:160] for node in one['nodes'][:4])}"
            for one in found
            if one["impact"] in ("serious", "critical")
        ]

    def too_wide(self) -> list[str]:
        """The elements that make the page scroll sideways; empty where it fits. What is drawn anew for another width of the
        window is so in the frame after that."""
        found: list[str] = self.page.evaluate(
            """async () => {
              for (let n = 0; n < 2; n++) await new Promise((drawn) => requestAnimationFrame(drawn));
              const wide = document.documentElement.clientWidth;
              if (document.documentElement.scrollWidth <= wide) return [];
              const all = [...document.querySelectorAll("body *")];
              const beyond = all.filter((one) => one.getBoundingClientRect().right > wide + 1);
              return beyond.length ? beyond.slice(0, 5).map((one) => one.outerHTML.slice(0, 120)) : ["something"];
            }"""
        )
        return found

    def stays(self) -> None:
        """From here on a reload would be noticed by `stayed`."""
        self.page.evaluate("window.stays = true")

    @property
    def stayed(self) -> bool:
        return bool(self.page.evaluate("window.stays === true"))
