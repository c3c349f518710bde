"""Headless Chromium on a folder that is served on this machine only: what the book's tests need."""

import contextlib
import functools
import http.server
import os
import shutil
import threading
import time
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


# Inline formulas that scroll on their own although the line is wide enough for what is to be seen of them.
SCROLLING_FORMULAS = """() => [...document.querySelectorAll('span.math')].filter(e => {
  const scrolls = getComputedStyle(e).overflowX !== 'visible' && e.scrollWidth > e.clientWidth;
  const bar = e.offsetHeight > e.clientHeight + 1 || e.offsetWidth > e.clientWidth + 1;
  const wide = Math.max(0, ...[...e.querySelectorAll('mjx-math')].map(m => m.getBoundingClientRect().width));
  return (bar || scrolls) && wide <= e.clientWidth + 1;
}).map(e => e.textContent.trim().slice(0, 60))"""

# Inline formulas that are wider than their line.
WIDE_FORMULAS = """() => [...document.querySelectorAll('span.math')].filter(e =>
  [...e.querySelectorAll('mjx-math')].some(m => m.getBoundingClientRect().width > e.clientWidth + 1)
).map(e => e.textContent.trim().slice(0, 60))"""

# How many characters fit into the narrowest block of code or output, all that is folded away unfolded.
CHARACTERS = """() => {
  document.querySelectorAll('details').forEach(e => e.open = true);
  document.querySelectorAll('.toggle-hidden').forEach(e => e.classList.remove('toggle-hidden'));
  const fits = pre => {
    const style = getComputedStyle(pre), ruler = document.createElement('span');
    ruler.textContent = 'x'.repeat(100);
    ruler.style.cssText = 'visibility: hidden; position: absolute; white-space: pre';
    pre.appendChild(ruler);
    const one = ruler.getBoundingClientRect().width / 100;
    ruler.remove();
    return Math.floor((pre.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)) / one);
  };
  return Math.min(Infinity, ...[...document.querySelectorAll('.bd-article pre')].filter(e => e.clientWidth).map(fits));
}"""


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
    """A headless Chromium, whose scrollbars take room as they do for most readers."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=FLAGS, ignore_default_args=["--hide-scrollbars"]
        )
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
    waiting: dict[int, str] = field(default_factory=dict)  # requests without an answer so far

    def quiet(self, longest: float = 60) -> None:
        """Wait until nothing has been asked for during half a second. (Playwright's "networkidle" is lost at times.)"""
        silence, until = 0, time.monotonic() + longest
        while silence < 5:
            assert time.monotonic() < until, f"still waiting for {list(self.waiting.values())}"
            self.page.wait_for_timeout(100)
            silence = 0 if self.waiting else silence + 1

    def settle(self) -> None:
        """Wait for formulas and widgets."""
        self.quiet()
        self.page.evaluate("() => window.MathJax?.startup?.promise")
        if self.page.locator("script[type='application/vnd.jupyter.widget-view+json']").count():
            self.page.wait_for_selector(".jupyter-widgets", timeout=20_000)
            self.quiet()

    def resize(self, width: int) -> None:
        """Give the window another width and let the page's scripts answer."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.wait_for_timeout(300)

    def formulas(self) -> tuple[int, list[str]]:
        """How many formulas were set, and the texts that MathJax could not read (an unknown macro is set in red)."""
        wrong = self.page.locator("mjx-merror, mjx-mtext[style*='red']").all_inner_texts()
        return self.page.locator("mjx-container").count(), wrong

    def scrolling_formulas(self) -> list[str]:
        """Inline formulas with a scrollbar that nothing visible needs."""
        return self.page.evaluate(SCROLLING_FORMULAS)

    def wide_formulas(self) -> list[str]:
        """Inline formulas that no line can hold."""
        return self.page.evaluate(WIDE_FORMULAS)

    def characters(self) -> float:
        """How many characters fit into the narrowest block of code; infinity where there is none."""
        return self.page.evaluate(CHARACTERS)

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
    context.set_default_timeout(120_000)  # a busy machine is slow, not wrong
    visit = Visit(context.new_page())
    home = "/".join(address.split("/")[:3]) + "/"

    def watch(route):
        if route.request.url.startswith((home, "data:", "blob:")):
            return route.continue_()
        visit.outside.append(route.request.url)
        return route.abort()

    context.route("**/*", watch)
    visit.page.on("request", lambda request: visit.waiting.update({id(request): request.url}))
    for end in ("requestfinished", "requestfailed"):
        visit.page.on(end, lambda request: visit.waiting.pop(id(request), None))
    visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    visit.page.on("console", lambda said: visit.complaints.append(said.text) if said.type == "error" else None)
    try:
        visit.page.goto(address)
        visit.settle()
        yield visit
    finally:
        context.close()
