"""Self-checks for the assignment problems: ``check("static-embeddings/unmix", unmix)``.

A check calls the learner's function on values worked out by hand and tests what must always hold. It
reads no file, installs nothing and does not contain a solution. An answer that passes is not yet a
full mark: graders use inputs that are not in here.

What is tried stands in ``lmcourse.exercises``, a module for each chapter, read when it is asked for. Its ``CHECKS``
has, for each name, a function that takes the answer and yields pairs: what is tried in a few words, and a function
without arguments that tries it and returns None, or what is wrong.
"""

import importlib
import pkgutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Item:
    """One thing that was checked: ``problem`` is empty where it holds."""

    name: str
    problem: str


@dataclass(frozen=True)
class Report:
    """What :func:`check` found; as the last line of a cell it shows itself."""

    exercise: str
    items: tuple[Item, ...]

    @property
    def passed(self) -> bool:
        return all(not item.problem for item in self.items)

    def __repr__(self) -> str:
        lines = [f"{'✗' if i.problem else '✓'} {i.name}{': ' + i.problem if i.problem else ''}" for i in self.items]
        done = sum(not i.problem for i in self.items)
        lines = ["\n".join(textwrap.wrap(line, 88, subsequent_indent="    ")) for line in lines]
        return "\n".join([*lines, f"{self.exercise}: {done} of {len(self.items)} hold"])


def check(exercise: str, answer: Callable) -> Report:
    """Tries ``answer``, the function that the exercise asks for; returns what holds and what does not.

    ``exercise``: the id in the exercise's text, ``"chapter/name"``; a ``ValueError`` lists the ids that there are.
    An answer that raises fails the item, not the check.
    """
    slug, _, name = exercise.partition("/") if isinstance(exercise, str) else ("", "", "")
    if name not in _of_chapter(slug):
        raise ValueError(f"exercise: got {exercise!r}, expected one of {exercises()}")
    if not callable(answer):
        raise TypeError(f"answer: got {type(answer).__name__}, expected the function itself, without parentheses")
    return Report(exercise, tuple(Item(what, _problem(test)) for what, test in _of_chapter(slug)[name](answer)))


def exercises() -> list[str]:
    """The ids of all exercises that have a check."""
    return sorted(f"{slug}/{name}" for slug in _chapters() for name in _of_chapter(slug))


def _chapters() -> dict[str, str]:
    """Each chapter that has checks → the name of their module."""
    package = importlib.import_module("lmcourse.exercises")
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return {name.replace("_", "-"): f"{package.__name__}.{name}" for name in names}


def _of_chapter(slug: str) -> dict[str, Callable]:
    """The checks of one chapter. Only the names of modules that are there are ever imported."""
    module = _chapters().get(slug)
    return importlib.import_module(module).CHECKS if module else {}


def _problem(test: Callable[[], str | None]) -> str:
    """What ``test`` returns or raises, as one short line."""
    try:
        found = test() or ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a learner's function may raise anything, exit() among it
        found = f"it raised {type(error).__name__}: {_said(error)}"
    return " ".join(found.split())[:300]


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as another:
        return f"(no message: its __str__ raised {type(another).__name__})"


def close(got: object, expected: object, tolerance: float = 1e-6) -> str | None:
    """None where ``got`` is a tensor of the shape and values of ``expected``, or a line with both.

    ``expected``: numbers, lists or a tensor; equal infinities are equal, NaN equals nothing. ``tolerance``: the
    distance allowed, absolute and relative.
    """
    if not isinstance(got, Tensor):
        return f"got {type(got).__name__}, expected a tensor"
    expected = torch.as_tensor(expected, dtype=torch.float64)
    if got.shape != expected.shape:
        return f"got shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    if not torch.allclose(got.detach().double(), expected, rtol=tolerance, atol=tolerance):
        show = lambda t: [float(f"{x:.4g}") for x in t.flatten().tolist()[:6]]  # noqa: E731
        return f"got {show(got)}, expected {show(expected)}"
    return None


def raises(call: Callable, *arguments: object) -> str | None:
    """None where ``call(*arguments)`` raises a ``ValueError``, or a line with what it returned instead."""
    try:
        result = call(*arguments)
    except ValueError:
        return None
    return f"got {result!r}, expected a ValueError"
