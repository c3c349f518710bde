"""The self-checks accept the reference solutions and reject answers that are wrong in a plausible way."""

import importlib.util
import re
from pathlib import Path

import pytest
from lmcourse.checks import check, exercises

FOLDER = Path(__file__).parent.parent / "teaching" / "solutions"


def _known(attribute: str) -> dict:
    found = {}
    for file in sorted(FOLDER.glob("*.py")):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found |= getattr(module, attribute)
    return found


needs_solutions = pytest.mark.skipif(not FOLDER.is_dir(), reason="solutions are not part of the public tree")


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
    for wrong in _known("WRONG")[exercise]:
        assert not check(exercise, wrong).passed, wrong.__name__


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
    assert re.search(problem, repr(report))


def test_the_reader_can_interrupt():
    with pytest.raises(KeyboardInterrupt):
        check("static-embeddings/unmix", raising(KeyboardInterrupt()))


@pytest.mark.parametrize("exercise", [["static-embeddings/unmix"], {}, None, 3])
def test_an_id_that_is_no_text(exercise):
    with pytest.raises(ValueError, match="exercise: got .*expected one of .*static-embeddings/unmix"):
        check(exercise, lambda: 0)


def test_wrong_calls_name_the_cure():
    with pytest.raises(ValueError, match="static-embeddings/unmix"):
        check("static-embeddings/unmx", lambda: 0)
    with pytest.raises(TypeError, match="without parentheses"):
        check("static-embeddings/unmix", 3.0)


def test_the_package_contains_no_solution():
    """The names that the exercises ask for are not to be found in lmcourse."""
    import lmcourse

    for file in Path(lmcourse.__file__).parent.glob("*.py"):
        for name in ("def nce_gradients", "def unmix"):
            assert name not in file.read_text(encoding="utf-8"), file.name
