"""The built book (_build/html): what can be read in its files, and what a reader meets in a browser."""

import re
from pathlib import Path
from urllib.parse import urlparse

import pytest
import yaml
from bs4 import BeautifulSoup

import browser as chrome

ROOT = Path(__file__).parent.parent
SITE = ROOT / "_build" / "html"
AXE = ROOT / "_vendor" / "tests" / "axe.min.js"
PAGES = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html") if "_static" not in path.parts)
SLUGS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
WIDGET = "script[type='application/vnd.jupyter.widget-view+json']"

pytestmark = pytest.mark.skipif(not PAGES, reason="the book is not built: run make book")
in_browser = pytest.mark.skipif(
    not chrome.chromium(),
    reason="no Chromium found: install one (Debian: apt-get install chromium) or set LMCOURSE_CHROMIUM to its path",
)
every_page = pytest.mark.parametrize("name", PAGES)
both_schemes = pytest.mark.parametrize("scheme", ["light", "dark"])

# One mistake of each kind that the checks below must find.
BROKEN = """<!doctype html><html><head><title>Broken</title>
<script src="_static/vendor/mathjax/tex-mml-chtml.js"></script>
<script src="https://elsewhere.invalid/widget.js"></script></head>
<body><h1>Broken</h1><img src="_static/file.png"><p>\\(\\frac\\)</p>
<p style="color: #bbb; background: #fff">Hard to read.</p><div style="width: 900px">Too wide.</div>
<script>console.error("something failed")</script></body></html>"""


def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def requested(page: BeautifulSoup) -> list[str]:
    """Addresses that a browser would load for this page: scripts, images, frames, style sheets, preloads."""
    found = [tag["src"] for tag in page.find_all(src=True)]
    loading = {"stylesheet", "preload", "icon", "modulepreload", "prefetch", "preconnect", "dns-prefetch"}
    found += [tag["href"] for tag in page.find_all("link", href=True) if loading & set(tag.get("rel", []))]
    return [address for address in found if urlparse(address).netloc]


def without_alternative(page: BeautifulSoup) -> list[str]:
    """Images that a screen reader could say nothing about."""
    silent = [str(tag)[:160] for tag in page.find_all("img") if not tag.get("alt", "").strip()]
    return silent + [
        str(tag)[:160] for tag in page.find_all("svg")
        if not tag.find("title") and not tag.get("aria-label") and tag.get("aria-hidden") != "true"
        and not tag.find_parent(attrs={"role": "img"}) and not tag.find_parent(attrs={"aria-hidden": "true"})
    ]


def colab_links(page: BeautifulSoup) -> set[str]:
    return {tag["href"] for tag in page.find_all("a", href=re.compile("^https://colab"))}


def notebook_in_colab(slug: str) -> str:
    """Where _config.yml says that the notebook is, as Colab addresses it."""
    repository = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]
    owner_and_name = repository["url"].rstrip("/").split("github.com/")[1]
    return f"https://colab.research.google.com/github/{owner_and_name}/blob/{repository['branch']}/notebooks/{slug}.ipynb"


# ------------------------------------------------------------------------------------ read in the files


@every_page
def test_a_page_names_no_other_host_to_load_from(name):
    assert requested(soup(SITE / name)) == []


@every_page
def test_every_image_has_a_text_alternative(name):
    assert without_alternative(soup(SITE / name)) == []


@every_page
def test_every_page_states_the_licences(name):
    text = soup(SITE / name).find("footer", class_="bd-footer-content").get_text(" ", strip=True)
    assert "Apache License 2.0" in text and "CC BY 4.0" in text


def test_the_licence_page_says_what_is_under_which():
    text = soup(SITE / "book" / "licences.html").find("main").get_text(" ")
    for words in ("Apache License 2.0", "Creative Commons Attribution 4.0", "NOTICES.md", "WordNet"):
        assert words in text


@pytest.mark.parametrize("slug", SLUGS)
@pytest.mark.parametrize("folder", ["book", "notebooks"])
def test_colab_opens_the_chapters_notebook(folder, slug):
    assert colab_links(soup(SITE / folder / f"{slug}.html")) == {notebook_in_colab(slug)}


def test_a_broken_page_is_found_in_its_file():
    page = BeautifulSoup(BROKEN, "html.parser")
    assert requested(page) == ["https://elsewhere.invalid/widget.js"]
    assert len(without_alternative(page)) == 1
    assert without_alternative(BeautifulSoup('<svg><path d="M0 0"/></svg>', "html.parser"))


def symbols(page: str) -> list[str]:
    """The symbols in the first column of the notation page's tables."""
    cells = re.findall(r"^\|(.*?)\|", page, re.M)
    return [symbol for cell in cells for symbol in re.findall(r"\$(.+?)\$", cell)]


def test_a_symbol_has_one_meaning():
    listed = symbols((ROOT / "book" / "notation.md").read_text(encoding="utf-8"))
    assert {"B", "T", "D", "H", "V", "K", "v_w", "u_c"} <= set(listed)
    assert sorted(listed) == sorted(set(listed))
    assert symbols("| $a$ | one |\n| $b$, $a$ | two |") == ["a", "b", "a"]  # a second meaning would be seen


def test_every_module_is_in_the_reference():
    text = soup(SITE / "book" / "api.html").find("main").get_text()
    modules = [path.stem for path in (ROOT / "lmcourse").glob("*.py") if not path.stem.startswith("_")]
    assert modules and [name for name in modules if f"lmcourse.{name}" not in text] == []


# ------------------------------------------------------------------------------------ met in a browser


@pytest.fixture(scope="module")
def site():
    with chrome.served(SITE) as address:
        yield address


@pytest.fixture(scope="module")
def chromium():
    with chrome.launched() as started:
        yield started


def findings(visit) -> list[str]:
    """What is wrong with a page at 1280 and at 320 pixels; empty for a good one."""
    found = [f"asks another host: {address}" for address in visit.outside]
    found += [f"console: {said}" for said in visit.complaints]
    for width in (1280, 320):
        visit.resize(width)
        found += [f"{width} px, sticks out: {element}" for element in visit.sticking_out()]
        found += [f"{width} px, {violation}" for violation in visit.violations(AXE)]
    return found


@in_browser
@every_page
@both_schemes
def test_a_page_is_accessible_fits_and_asks_no_other_host(site, chromium, name, scheme):
    with chrome.visited(chromium, site + name, scheme) as visit:
        assert findings(visit) == []


@in_browser
@pytest.mark.parametrize("name", [name for name in PAGES if 'class="math' in (SITE / name).read_text(encoding="utf-8")])
def test_formulas_are_set(site, chromium, name):
    with chrome.visited(chromium, site + name) as visit:
        count, wrong = visit.formulas()
        assert count > 0 and wrong == []


@in_browser
@pytest.mark.parametrize("name", [name for name in PAGES if 'class="math' in (SITE / name).read_text(encoding="utf-8")])
def test_no_inline_formula_has_a_scrollbar_of_its_own(site, chromium, name):
    with chrome.visited(chromium, site + name) as visit:
        for width in (1600, 1200, 320):
            visit.resize(width)
            assert visit.scrolling_formulas() == [], width
            if width >= 1200:
                assert visit.wide_formulas() == [], f"wider than a line at {width} pixels: display them with $$"


@in_browser
@pytest.mark.parametrize("name", [name for name in PAGES if "<pre" in (SITE / name).read_text(encoding="utf-8")])
def test_a_line_of_code_fits_into_a_wide_window(site, chromium, name):
    with chrome.visited(chromium, site + name) as visit:
        for width in (1600, 1400, 1280, 1200):
            visit.resize(width)
            assert visit.characters() >= 88, width


@in_browser
def test_scrollbars_and_narrow_code_are_found(tmp_path, chromium):
    page = """<!doctype html><style>.math { display: inline-flex; width: 60px; overflow: auto } .wide { flex: none; width: 90px }
        mjx-math { width: 40px } pre { width: 300px; font: 10px monospace }</style>
        <article class="bd-article"><p>See <span class="math"><mjx-math>x</mjx-math><i class="wide">hidden</i></span>
        and <span class="math"><mjx-math class="wide">y</mjx-math></span></p><pre>code</pre></article>"""
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    with chrome.served(tmp_path) as address, chrome.visited(chromium, address) as visit:
        assert [text.split()[0] for text in visit.scrolling_formulas()] == ["xhidden"]
        assert visit.wide_formulas() == ["y"] and 40 < visit.characters() < 60


def pages_with_widgets() -> list[str]:
    return [name for name in PAGES if soup(SITE / name).select(WIDGET)]


def shown(widget) -> str:
    """What a widget shows beside its controls: the markup of its last child."""
    return widget.locator(":scope > *").last.inner_html()


def test_some_page_has_a_widget():
    assert pages_with_widgets()


@in_browser
@pytest.mark.parametrize("name", pages_with_widgets())
def test_widgets_move_by_their_slider_and_by_play(site, chromium, name):
    with chrome.visited(chromium, site + name) as visit:
        widgets = visit.page.locator(".widget-vbox:has(.noUi-handle)")
        assert widgets.count() == len(soup(SITE / name).select(WIDGET))
        for widget in widgets.all():
            before = shown(widget)
            visit.page.wait_for_timeout(1000)
            assert shown(widget) == before  # it stands still until it is touched
            for key in ("ArrowRight", "ArrowLeft"):  # the other way where it begins at its last picture
                if shown(widget) == before:
                    widget.locator(".noUi-handle").first.press(key)
                    visit.page.wait_for_timeout(200)
            moved = shown(widget)
            assert moved != before, "the slider moves nothing"
            widget.locator(".widget-play button").first.click()
            visit.page.wait_for_timeout(2500)
            assert shown(widget) != moved, "Play moves nothing"


@in_browser
def test_search_finds_polysemy(site, chromium):
    def found(word: str) -> list[str]:
        with chrome.visited(chromium, f"{site}search.html?q={word}") as visit:
            visit.page.wait_for_function("() => /found|did not match/i.test(document.querySelector('#search-results').innerText)")
            return visit.page.locator("#search-results li a").all_inner_texts()

    assert any("One word, one vector" in title for title in found("polysemy"))
    assert found("xylophonist") == []


@in_browser
def test_a_broken_page_is_found_in_the_browser(tmp_path, chromium):
    (tmp_path / "_static").symlink_to(SITE / "_static")
    (tmp_path / "index.html").write_text(BROKEN, encoding="utf-8")
    with chrome.served(tmp_path) as address, chrome.visited(chromium, address) as visit:
        assert visit.formulas()[1]
        found = findings(visit)
    for mistake in ("asks another host: https://elsewhere.invalid/widget.js", "console: something failed",
                    "320 px, sticks out: the page scrolls sideways", "1280 px, image-alt", "1280 px, color-contrast"):
        assert any(line.startswith(mistake) for line in found), mistake
    assert not any(line.startswith("1280 px, sticks out") for line in found)  # 900 pixels fit
