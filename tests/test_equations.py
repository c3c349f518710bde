"""Every labelled equation of the book names its test, and every such test names a label that exists."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from equation import Equation

ROOT = Path(__file__).parent.parent
_LABEL = re.compile(r"^\$\$\s*\((eq-[\w-]+)\)|^:label:\s*(eq-[\w-]+)", re.MULTILINE)


def labels(folder: Path) -> Counter:
    """The labels of all numbered equations of the chapters, with how often each stands."""
    found = Counter()
    for page in folder.glob("*.md"):
        found.update(a or b for a, b in _LABEL.findall(page.read_text(encoding="utf-8")))
    return found


def _is_equation_mark(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.equation"


def covered(folder: Path) -> dict[str, str]:
    """label → the test function that carries ``@pytest.mark.equation(label)``."""
    found = {}
    for file in folder.glob("test_*.py"):
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            for mark in filter(_is_equation_mark, function.decorator_list):
                assert "equation" in [a.arg for a in function.args.args], f"{function.name} does not use the fixture"
                for label in mark.args:
                    found[ast.literal_eval(label)] = f"{file.name}::{function.name}"
    return found


def test_labels_are_unique():
    assert [label for label, n in labels(ROOT / "book").items() if n > 1] == []


def test_every_labelled_equation_has_a_test():
    assert sorted(labels(ROOT / "book").keys() - covered(ROOT / "tests").keys()) == []


def test_every_equation_test_has_its_label():
    assert sorted(covered(ROOT / "tests").keys() - labels(ROOT / "book").keys()) == []


def test_every_numbered_equation_of_a_chapter_is_labelled_eq():
    """A label outside the ``eq-`` scheme would escape the two tests above."""
    for page in (ROOT / "book").glob("*.md"):
        stray = re.findall(r"^\$\$\s*\((?!eq-)([^)]+)\)", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert stray == [], f"{page.name}: {stray}"


def test_a_missing_and_a_stale_test_are_found(tmp_path):
    (tmp_path / "a.md").write_text("$$\nx = y\n$$ (eq-one)\n\n```{math}\n:label: eq-two\nz\n```\n", encoding="utf-8")
    (tmp_path / "test_a.py").write_text(
        "import pytest\n@pytest.mark.equation('eq-one', 'eq-gone')\ndef test_a(equation): pass\n", encoding="utf-8"
    )
    assert labels(tmp_path).keys() - covered(tmp_path).keys() == {"eq-two"}
    assert covered(tmp_path).keys() - labels(tmp_path).keys() == {"eq-gone"}


def test_the_comparison_tells_right_from_wrong():
    checker = Equation()
    checker.holds([1.0, float("-inf")], [1.0, float("-inf")])
    checker.rejects([1.0, -1.0], [1.0, 1.0])
    with pytest.raises(AssertionError):
        checker.holds([1.0, 2.0], [1.0, 2.1])
    with pytest.raises(AssertionError, match="proves nothing"):
        checker.rejects([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(AssertionError, match="shapes differ"):
        checker.holds([1.0], [[1.0]])
