"""The self-checks accept the reference solutions and reject answers that are wrong in a plausible way."""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import lmcourse
import pytest
from lmcourse import checks
from lmcourse.checks import check, close, exercises, raises

FOLDER = Path(__file__).parent.parent / "teaching" / "solutions"


def _known(attribute: str) -> dict:
    """What the modules of solutions have under this name, all chapters together."""
    found = {}
    for file in sorted(FOLDER.glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"solutions_{file.stem}", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        part = getattr(module, attribute)
        assert all(exercise.startswith(file.stem.replace("_", "-") + "/") for exercise in part), file.name
        found |= part
    return found


needs_solutions = pytest.mark.skipif(not FOLDER.is_dir(), reason="teaching/solutions is not in this copy")


@needs_solutions
def test_every_check_has_a_solution_and_wrong_answers():
    assert sorted(_known("SOLUTIONS")) == sorted(_known("WRONG")) == exercises()


@needs_solutions
@pytest.mark.parametrize("exercise", exercises())
def test_the_solution_passes(exercise):
    report = check(exercise, _known("SOLUTIONS")[exercise])
    assert report.passed, report


@needs_solutions
@pytest.mark.parametrize("exercise", exercises())
def test_wrong_answers_fail(exercise):
    wrong = _known("WRONG")[exercise]
    assert len({answer.__name__ for answer in wrong}) >= 4, "at least four answers that are wrong in a plausible way"
    for answer in wrong:
        assert not check(exercise, answer).passed, answer.__name__


@pytest.mark.parametrize("exercise", exercises())
def test_a_check_says_each_thing_once(exercise):
    names = [item.name for item in check(exercise, lambda *a: None).items]
    assert len(names) >= 4 and len(set(names)) == len(names)
    assert all(name.strip() and len(name) <= 80 for name in names)


@pytest.mark.parametrize("exercise", exercises())
@pytest.mark.parametrize("answer", [lambda *a: None, lambda *a: 1 / 0, lambda: 0, lambda *a: a[0]])
def test_any_answer_gets_a_report(exercise, answer):
    report = check(exercise, answer)
    assert not report.passed
    assert exercise in repr(report) and "✗" in repr(report)
    assert all(len(item.problem) <= 300 for item in report.items)


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def raising(error):
    def answer(*arguments):
        raise error

    return answer


@pytest.mark.parametrize(
    "error, problem",
    [(Mute(), "raised Mute: .no message: its __str__ raised RuntimeError"), (SystemExit(1), "raised SystemExit: 1")],
)
def test_an_answer_cannot_end_the_check(error, problem):
    report = check("static-embeddings/unmix", raising(error))
    assert not report.passed
    assert re.search(problem, " ".join(repr(report).split()))
    assert max(map(len, repr(report).splitlines())) <= 88  # as a notebook's lines


def test_the_reader_can_interrupt():
    with pytest.raises(KeyboardInterrupt):
        check("static-embeddings/unmix", raising(KeyboardInterrupt()))


@pytest.mark.parametrize("exercise", [["static-embeddings/unmix"], {}, None, 3])
def test_an_id_that_is_no_text(exercise):
    with pytest.raises(ValueError, match="exercise: got .*expected one of .*static-embeddings/unmix"):
        check(exercise, lambda: 0)


@pytest.mark.parametrize(
    "exercise", ["nothing/here", "../checks/check", "os/path", "checks/check", "static_embeddings/unmix", "/", "", "a"]
)
def test_an_unknown_chapter_is_not_imported(exercise):
    before = set(sys.modules)
    with pytest.raises(ValueError, match="exercise: got .*expected one of .*static-embeddings/unmix"):
        check(exercise, lambda: 0)
    assert {name for name in set(sys.modules) - before if not name.startswith("lmcourse.exercises")} == set()


def test_only_the_chapter_that_is_asked_for_is_imported(monkeypatch):
    monkeypatch.setattr(checks, "exercises", lambda: pytest.fail("all chapters were read"))
    check("static-embeddings/unmix", lambda *a: None)


def test_wrong_calls_name_the_cure():
    with pytest.raises(ValueError, match="static-embeddings/unmix"):
        check("static-embeddings/unmx", lambda: 0)
    with pytest.raises(TypeError, match="without parentheses"):
        check("static-embeddings/unmix", 3.0)


def test_the_helpers_tell_right_from_wrong():
    import torch

    assert close(torch.tensor([1.0, -torch.inf]), [1.0, -torch.inf]) is None
    assert close(torch.tensor([1.0]), [1.1], tolerance=0.2) is None
    assert "got [1.0], expected [1.1]" in close(torch.tensor([1.0]), [1.1])
    assert close(torch.tensor([torch.nan]), [torch.nan])
    assert close([1.0], [1.0]) == "got list, expected a tensor"
    assert close(torch.zeros(2), torch.zeros(1, 2)) == "got shape (2,), expected (1, 2)"
    assert raises(int, "x") is None and raises(int, "3") == "got 3, expected a ValueError"


def functions(folder: Path) -> set[str]:
    """The names of the functions at the top of a package's modules."""
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in folder.rglob("*.py"))
    return {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}


@needs_solutions
def test_the_package_contains_no_solution():
    """The functions that the exercises ask for are not to be found in lmcourse; a check has another name."""
    asked = {solution.__name__ for solution in _known("SOLUTIONS").values()}
    assert asked & functions(Path(lmcourse.__file__).parent) == set()
    assert {"check", "close"} <= functions(Path(lmcourse.__file__).parent)
