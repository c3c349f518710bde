"""Every labelled equation of the book names its test, and every such test names a label that exists."""

import re
from collections import Counter
from pathlib import Path

import equations
import pytest
from equation import Equation, Equations
from equations import covered

ROOT = Path(__file__).parent.parent


def labels(folder: Path) -> Counter:
    """The labels of all numbered equations of the chapters, with how often each stands."""
    pages = (page.read_text(encoding="utf-8") for page in folder.glob("*.md"))
    return Counter(label for page in pages for label, _ in equations.numbered(page))


def test_labels_are_unique():
    assert [label for label, n in labels(ROOT / "book").items() if n > 1] == []


def test_every_labelled_equation_has_a_test():
    assert sorted(labels(ROOT / "book").keys() - covered(ROOT / "tests").keys()) == []


def test_every_equation_test_has_its_label():
    assert sorted(covered(ROOT / "tests").keys() - labels(ROOT / "book").keys()) == []


def test_every_numbered_equation_of_a_chapter_is_labelled_eq():
    """One scheme, so that a reference says what it refers to."""
    assert [label for label in labels(ROOT / "book") if not re.fullmatch(r"eq-[a-z0-9-]+", label)] == []


def test_every_labelled_equation_is_as_it_was_when_its_test_was_last_read():
    found = equations.changes(equations.read(ROOT / "book"), equations.stamped(ROOT / "tests" / "equations"))
    tests = covered(ROOT / "tests")
    lines = [f"{label}: {kind}; its test: {tests.get(label, 'none')}" for label, kind in found.items()]
    cure = "Read each of these tests against the page, correct what differs, then run: python tools/equations.py"
    assert not found, "\n".join([*lines, cure])


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


def test_each_label_is_checked_both_ways():
    two = Equations(["eq-a", "eq-b"])
    two("eq-a").holds([1.0], [1.0])
    two("eq-a").rejects([2.0], [1.0])
    two("eq-b").holds([1.0], [1.0])
    with pytest.raises(AssertionError, match="eq-b: its test must call equation.rejects"):
        two.finish()
    two("eq-b").rejects([2.0], [1.0])
    two.finish()
    with pytest.raises(AssertionError, match=r"2 labels, so say equation\('eq-a'\)"):
        two.holds([1.0], [1.0])
    with pytest.raises(AssertionError, match="eq-c is not among the labels"):
        two("eq-c")
    one = Equations(["eq-a"])
    one.rejects([2.0], [1.0])
    with pytest.raises(AssertionError, match="eq-a: its test must call equation.holds"):
        one.finish()


# ------------------------------------------------------------------------------------- stamps

PAGE = """
```python
price = "$$" # not a formula
```
$$ x = y $$ (eq-line)

$$
\\frac{a}{b} + c .
$$ (eq-block)

$$ unlabelled $$

```{note}
Not code.
```

```
$$ x $$ (eq-code)
```

````{prf:theorem} Inside
$$
\\begin{aligned}
 u &= v, \\\\
 w &= z
\\end{aligned}
$$ (eq-inside)
````

```{math}
:label: eq-directive
p(c \\mid w) = 1
```
"""


def test_formulas_are_found_wherever_they_stand():
    found = dict(equations.numbered(PAGE))
    assert list(found) == ["eq-line", "eq-block", "eq-inside", "eq-directive"]
    assert found["eq-line"].strip() == "x = y" and found["eq-directive"].strip() == r"p(c \mid w) = 1"
    assert found["eq-inside"].count("\n") == 5


@pytest.mark.parametrize(
    "same", [r"\frac{a}{b}+c", "\\frac{a}{b}\n  + c .", r"\frac{a}{b}\, +\quad c,", "\\frac{a}{b} + c % a comment\n"]
)
def test_layout_does_not_change_a_stamp(same):
    assert equations.stamp(same) == equations.stamp(r"\frac{a}{b} + c .")


@pytest.mark.parametrize(
    "other", [r"\frac{a}{b} - c", r"\frac{b}{a} + c", r"2 \frac{a}{b} + c", r"\frac{a}{b} + c'", r"\frac{a}{b} + c_1"]
)
def test_a_sign_an_index_or_a_factor_does(other):
    assert equations.stamp(other) != equations.stamp(r"\frac{a}{b} + c .")
    assert equations.stamp(r"\log a b") != equations.stamp(r"\log ab")


def test_stamps_are_written_page_by_page(tmp_path):
    (tmp_path / "book").mkdir()
    page = tmp_path / "book" / "words.md"
    page.write_text(PAGE, encoding="utf-8")
    (tmp_path / "book" / "plain.md").write_text("No equation.", encoding="utf-8")

    def state():
        return equations.changes(equations.read(tmp_path / "book"), equations.stamped(tmp_path / "tests/equations"))

    assert set(state().values()) == {"new"} and len(state()) == 4
    assert equations.write(tmp_path) == dict.fromkeys(["eq-block", "eq-directive", "eq-inside", "eq-line"], "new")
    assert state() == {} and equations.write(tmp_path) == {}
    page.write_text(PAGE.replace("x = y", "x = -y").replace("eq-block", "eq-moved"), encoding="utf-8")
    assert state() == {"eq-line": "changed", "eq-moved": "new", "eq-block": "gone"}
    assert equations.write(tmp_path, "plain") == {} and len(state()) == 3
    assert equations.write(tmp_path, "words") and state() == {}
    page.unlink()
    assert set(equations.write(tmp_path).values()) == {"gone"}
    assert list((tmp_path / "tests" / "equations").iterdir()) == []


def test_the_command_says_how_it_is_used(capsys):
    assert equations.main(["no-such-page"]) == 2 and "SLUG" in capsys.readouterr().err
