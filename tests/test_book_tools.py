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
