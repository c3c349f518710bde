"""Headless Chromium on a folder that is served on this machine only: what the book's tests need."""

import contextlib
import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
         "--disable-component-update --disable-sync").split()

# Elements that stick out of the window to the right, unless something around them scrolls or cuts them.
STICKING_OUT = """() => {
  const cut = e => { for (let a = e; a && a !== document.body; a = a.parentElement)
    if (getComputedStyle(a).overflowX !== 'visible' || getComputedStyle(a).clip !== 'auto') return true;
    return false; };
  const width = document.documentElement.clientWidth;
  const out = [...document.body.querySelectorAll('*')].filter(
    e => e.getBoundingClientRect().right > width + 1 && e.getBoundingClientRect().width > 0
         && getComputedStyle(e).visibility !== 'hidden' && !cut(e) && !e.closest('dialog'));
  const names = out.map(e => e.tagName.toLowerCase() + '.' + e.className);
  if (document.documentElement.scrollWidth > width + 1) names.push('the page scrolls sideways');
  return names; }"""


def chromium() -> str | None:
    """The path of an installed Chromium: LMCOURSE_CHROMIUM, or the first of the usual names; None if there is none."""
    named = os.environ.get("LMCOURSE_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of ``folder``, served on the loopback interface while the context lasts."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """A page that has been opened, and what it asked for and complained of meanwhile."""

    page: Page
    outside: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def settle(self) -> None:
        """Wait for formulas and widgets."""
        self.page.wait_for_load_state("networkidle")
        self.page.evaluate("() => window.MathJax?.startup?.promise")
        if self.page.locator("script[type='application/vnd.jupyter.widget-view+json']").count():
            self.page.wait_for_selector(".jupyter-widgets", timeout=20_000)
            self.page.wait_for_load_state("networkidle")

    def resize(self, width: int) -> None:
        """Give the window another width and let the page's scripts answer."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.wait_for_timeout(300)

    def formulas(self) -> tuple[int, list[str]]:
        """How many formulas were set, and the texts that MathJax could not read (an unknown macro is set in red)."""
        wrong = self.page.locator("mjx-merror, mjx-mtext[style*='red']").all_inner_texts()
        return self.page.locator("mjx-container").count(), wrong

    def sticking_out(self) -> list[str]:
        """What makes the page wider than the window."""
        return self.page.evaluate(STICKING_OUT)

    def violations(self, axe: Path) -> list[str]:
        """What axe-core finds: one line for each rule and element."""
        self.page.evaluate(axe.read_text(encoding="utf-8"))
        found = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [
            f"{rule['id']}: {node['target']} {node['html'][:160]} {node['failureSummary'][:300]}"
            for rule in found for node in rule["nodes"]
        ]


@contextlib.contextmanager
def visited(browser: Browser, address: str, scheme: str = "light") -> Iterator[Visit]:
    """Open ``address``; requests to any other host are recorded and refused."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    visit = Visit(context.new_page())
    home = "/".join(address.split("/")[:3]) + "/"

    def watch(route):
        if route.request.url.startswith((home, "data:", "blob:")):
            return route.continue_()
        visit.outside.append(route.request.url)
        return route.abort()

    context.route("**/*", watch)
    visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    visit.page.on("console", lambda said: visit.complaints.append(said.text) if said.type == "error" else None)
    try:
        visit.page.goto(address)
        visit.settle()
        yield visit
    finally:
        context.close()
