"""What the book is built with: page assets that are checked, and the local Sphinx extensions."""

import json
import sys
from pathlib import Path

import pytest
from sphinx.errors import ExtensionError

sys.path.insert(0, str(Path(__file__).parent.parent / "book" / "_ext"))
import api  # noqa: E402
import assets  # noqa: E402
import budget  # noqa: E402
import measured  # noqa: E402
import notebook_button  # noqa: E402

# ------------------------------------------------------------------------------------ page assets


def test_an_asset_with_another_hash_is_refused():
    lock = json.loads(assets.LOCK.read_text(encoding="utf-8"))
    assert all(asset["integrity"].startswith("sha512-") for asset in lock.values())
    assert "http" not in assets.LOCK.read_text(encoding="utf-8")
    right = assets.integrity(b"archive")
    assert assets.checked("name", b"archive", right) == b"archive"
    with pytest.raises(ValueError, match="damaged or replaced"):
        assets.checked("name", b"archivE", right)


def test_an_asset_cannot_be_written_elsewhere():
    take = {"es5/": ["site/vendor/"]}
    assert assets.places("es5/a.js", "name", take) == ["site/vendor/a.js"]
    assert assets.places("es5/../../a.js", "name", take) == []
    assert assets.places("other/a.js", "name", take) == []


# ------------------------------------------------------------------------------------ local extensions


def test_the_reference_reads_signatures_without_importing():
    source = '''"""Room."""
class Thing:
    """A thing."""
    size: int = 3
    def grow(self, by: int, *, slowly: bool = True) -> int:
        """Grow by p(c|w), see :func:`make`."""
    def _hidden(self): ...
def make(size: "Size") -> Thing:
    """Make one."""
raise RuntimeError("imported")'''
    lines = dict(api.describe(source, "lmcourse.room"))
    assert lines["   .. py:method:: grow(by: int, *, slowly: bool=True) -> int"] == 5
    assert lines[".. py:function:: make(size: 'Size') -> Thing"] == 8
    assert lines["      size: int = 3"] == 2
    assert "      Grow by p(c\\|w), see :func:`.make`." in lines
    written = [line for line, _ in api.describe(source, "lmcourse.room")]
    assert written[written.index("   A thing.") + 1].strip() == ""  # or the first method would run into the paragraph
    assert not any("_hidden" in line for line in lines)


def test_the_colab_button_follows_the_repository():
    options = {"repository_url": "https://github.com/me/fork/", "repository_branch": "dev",
               "launch_buttons": {"colab_url": "https://colab.research.google.com"}}
    address = notebook_button.notebook_address(options, "subwords")
    assert address == "https://colab.research.google.com/github/me/fork/blob/dev/notebooks/subwords.ipynb"
    with pytest.raises(ExtensionError, match="only https://github.com"):
        notebook_button.notebook_address(options | {"repository_url": "https://example.org/x/y"}, "subwords")


def test_the_cost_of_a_notebook_is_read_and_told(tmp_path):
    assert budget.read_budget(tmp_path) == {}
    (tmp_path / "notebooks").mkdir()
    cost = {"seconds": 61.4, "peak_mb": 812.3, "cores": 2, "processor": "a processor"}
    (tmp_path / "notebooks" / "budget.json").write_text(json.dumps({"subwords": cost}), encoding="utf-8")
    assert budget.read_budget(tmp_path) == {"subwords": cost}
    assert budget.sentence(cost) == "Runs in 61 s with 812 MB of memory at most (2 cores, a processor)."


# ------------------------------------------------------------------------------------ what was measured

NOTEBOOK = {
    "cells": [
        {"metadata": {"lmcourse": {"name": "curve"}}, "outputs": [{"data": {"text/html": ["<svg id='it'>", "</svg>"]}}]},
        {"metadata": {"lmcourse": {"name": "quoted"}}, "outputs": [{"text": ["loss: 1.25\n", "rank of river: 7\n"]}]},
        {"metadata": {}},
    ]
}


@pytest.fixture
def page(tmp_path):
    """Builds a page whose notebook is the one above; its HTML as a tree, and the warnings."""
    import io

    from bs4 import BeautifulSoup
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace

    def build(text):
        (tmp_path / "notebooks").mkdir()
        (tmp_path / "notebooks" / "words.ipynb").write_text(json.dumps(NOTEBOOK), encoding="utf-8")
        (tmp_path / "index.md").write_text(f"---\nnotebook: words\n---\n\n# Words\n\n{text}\n", encoding="utf-8")
        (tmp_path / "conf.py").write_text("extensions = ['myst_parser', 'measured']\nmyst_enable_extensions = ['dollarmath']\n"
                                          "exclude_patterns = ['out', 'notebooks']\nnumfig = True\n", encoding="utf-8")
        said = io.StringIO()
        with docutils_namespace():
            folders = [tmp_path, tmp_path, tmp_path / "out", tmp_path / "out" / "trees"]
            Sphinx(*map(str, folders), "html", status=None, warning=said).build()
        return BeautifulSoup((tmp_path / "out" / "index.html").read_text(encoding="utf-8"), "html.parser"), said.getvalue()

    return build


def test_an_output_stands_on_its_own_or_over_its_caption(page):
    html, said = page(
        "```{measured-output} curve\n```\n\n```{measured-output} curve\n**The loss** falls to {measured}`loss`, about $x^2$;\n"
        "it does not rise.\n```\n\nRank {measured}`rank of river`."
    )
    assert said == ""
    alone, captioned = html.select("svg#it")
    assert alone.find_parent("figure") is None
    figure = captioned.find_parent("figure", class_="measured-output")
    (caption,) = figure.find_all("figcaption")
    assert caption.get_text(" ", strip=True).replace("  ", " ").startswith("The loss falls to 1.25 , about")
    assert caption.strong and caption.select_one(".measured") and caption.select_one("span.math")
    assert figure.find_next_sibling("p").get_text() == "Rank 7."  # the figure ends where its caption does


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("```{measured-output} curv\n```", "no cell 'curv' with an HTML output"),
        ("```{measured-output} quoted\nA caption.\n```", "no cell 'quoted' with an HTML output"),
        ("```{measured-output} curve\nThe loss is {measured}`los`.\n```", "the notebook quotes no 'los'"),
        ("```{measured-output} curve\n- a list\n```", "a caption is paragraphs alone"),
    ],
)
def test_what_was_not_measured_is_a_warning(page, text, complaint):
    assert complaint in page(text)[1]


def test_the_quoted_cell_is_read_line_by_line(tmp_path):
    (tmp_path / "a.ipynb").write_text(json.dumps(NOTEBOOK), encoding="utf-8")
    assert measured.quoted(tmp_path / "a.ipynb") == {"loss": "1.25", "rank of river": "7"}
