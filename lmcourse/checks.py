"""Self-checks for the assignment problems: ``check("static-embeddings/unmix", unmix)``.

A check calls the learner's function on values worked out by hand and tests what must always hold. It
reads no file, installs nothing and does not contain a solution. An answer that passes is not yet a
full mark: graders use inputs that are not in here.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

_CHECKS: dict[str, Callable] = {}


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
        return "\n".join([*lines, f"{self.exercise}: {done} of {len(self.items)} hold"])


def check(exercise: str, answer: Callable) -> Report:
    """Tries ``answer``, the function that the exercise asks for; returns what holds and what does not.

    ``exercise``: the id in the exercise's text. An answer that raises fails the item, not the check.
    """
    if not isinstance(exercise, str) or exercise not in _CHECKS:
        raise ValueError(f"exercise: got {exercise!r}, expected one of {sorted(_CHECKS)}")
    if not callable(answer):
        raise TypeError(f"answer: got {type(answer).__name__}, expected the function itself, without parentheses")
    return Report(exercise, tuple(Item(name, _problem(test)) for name, test in _CHECKS[exercise](answer)))


def exercises() -> list[str]:
    """The ids of all exercises that have a check."""
    return sorted(_CHECKS)


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


def _exercise(name: str):
    def register(items):
        _CHECKS[name] = items
        return items

    return register


def _close(got, expected, tolerance: float = 1e-6) -> str | None:
    """None where ``got`` is a tensor equal to ``expected``, or a line with both."""
    if not isinstance(got, Tensor):
        return f"got {type(got).__name__}, expected a tensor"
    expected = torch.as_tensor(expected, dtype=torch.float64)
    if got.shape != expected.shape:
        return f"got shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    if not torch.allclose(got.detach().double(), expected, rtol=tolerance, atol=tolerance):
        show = lambda t: [float(f"{x:.4g}") for x in t.flatten().tolist()[:6]]  # noqa: E731
        return f"got {show(got)}, expected {show(expected)}"
    return None


def _raises(call: Callable, *arguments) -> str | None:
    try:
        result = call(*arguments)
    except ValueError:
        return None
    return f"got {result!r}, expected a ValueError"


# ------------------------------------------------------------------------------ static-embeddings


@_exercise("static-embeddings/nce")
def _nce(nce_gradients) -> Iterator[tuple[str, Callable]]:
    """nce_gradients(v, u, centres, contexts, negatives, noise) → (grad_v, grad_u) of the mean over pairs."""
    ids, half = lambda *x: torch.tensor(x), torch.tensor([0.5, 0.5], dtype=torch.float64)  # noqa: E731
    table = lambda *rows: torch.tensor(rows, dtype=torch.float64)[:, None]  # noqa: E731
    v, zero = table(3.0, 0.0), table(0.0, 0.0)
    one_draw = (ids(0), ids(0), ids(1)[None])

    yield "shapes of the tables", lambda: (
        _close(torch.stack([torch.tensor(g.shape) for g in nce_gradients(v, zero, *one_draw, half)]), [[2, 1], [2, 1]])
    )
    # k q = 1/2, so a score of 0 counts as log 2, and σ(log 2) = 2/3.
    yield "scores 0, by hand", lambda: _close(nce_gradients(v, zero, *one_draw, half)[1], [[-1.0], [2.0]])
    # u_c = log 2 under v = 1: log 2 + log 2 = log 4, σ = 4/5, minus 1.
    yield "one score log 2, by hand", lambda: _close(
        nce_gradients(table(1.0, 0.0), table(math.log(2), 0.0), *one_draw, half)[0], [[-math.log(2) / 5], [0.0]]
    )
    # Two draws: k q = 1, the correction vanishes; the same word drawn twice is pushed twice.
    yield "a word drawn twice counts twice", lambda: _close(
        nce_gradients(v, zero, ids(0), ids(0), ids(1, 1)[None], half)[1], [[-1.5], [3.0]]
    )
    yield "the mean over pairs, not the sum", lambda: _close(
        nce_gradients(v, zero, ids(0, 0), ids(0, 0), torch.tensor([[1], [1]]), half)[1], [[-1.0], [2.0]]
    )
    for power in (0.0, 0.75, 2.0):
        yield f"at log p(c|w) the expected gradient is 0, noise ∝ count^{power}", (
            lambda power=power: _rests_at_log_conditional(nce_gradients, power)
        )


def _rests_at_log_conditional(nce_gradients, power: float) -> str | None:
    counts = torch.tensor([[4, 1, 3], [1, 2, 5], [6, 2, 2]])
    noise = counts.sum(0).double() ** power
    noise = noise / noise.sum()
    conditional = counts.double() / counts.sum(1, keepdim=True)
    v, u = torch.eye(3, dtype=torch.float64), torch.log(conditional).T.contiguous()  # so that u_c · v_w = log p(c|w)
    centres, contexts = (i.repeat_interleave(counts.flatten()) for i in torch.cartesian_prod(*[torch.arange(3)] * 2).T)
    total = torch.zeros(2, 3, 3, dtype=torch.float64)
    for n in range(3):  # every possible draw, weighted by its probability
        draw = torch.full((len(centres), 1), n)
        total += noise[n] * torch.stack(tuple(nce_gradients(v, u, centres, contexts, draw, noise)))
    return _close(total, torch.zeros(2, 3, 3))


@_exercise("static-embeddings/unmix")
def _unmix(unmix) -> Iterator[tuple[str, Callable]]:
    """unmix(x, x1, p1) → x2 with x = log(p1 exp x1 + (1 − p1) exp x2)."""
    t = lambda *x: torch.tensor(x, dtype=torch.float64)  # noqa: E731
    inf = math.inf

    yield "shares of one half, by hand", lambda: _close(unmix(t(math.log(1.5)), t(0.0), 0.5), [math.log(2)])
    yield "share 1/4, by hand", lambda: _close(unmix(t(math.log(7)), t(0.0), 0.25), [math.log(9)])
    yield "an impossible first sense leaves log(1 − p) to add", lambda: _close(
        unmix(t(1.0), t(-inf), 0.9), [1.0 - math.log(0.1)]
    )
    yield "the first sense explains everything", lambda: _close(unmix(torch.log(t(0.5)), t(0.0), 0.5), [-inf])
    for offset in (0.0, 1000.0, -1000.0):
        yield f"mixing and unmixing give back x2, scores near {offset:g}", (
            lambda offset=offset: _round_trip(unmix, offset)
        )
    zeros = torch.zeros(2, 3).double()
    yield "shapes are kept", lambda: _close(unmix(zeros, zeros.clone(), 0.3), [[0.0] * 3] * 2)
    yield "no second sense can exist: x below x1 + log p1", lambda: _raises(unmix, t(-1.0), t(0.0), 0.5)
    for p1 in (0.0, 1.0, -0.1, 1.5):
        yield f"a share of {p1:g} is refused", lambda p1=p1: _raises(unmix, t(0.0), t(0.0), p1)


def _round_trip(unmix, offset: float) -> str | None:
    x2 = torch.linspace(-6, 6, 13, dtype=torch.float64) + offset
    x1 = torch.full_like(x2, offset)
    for p1 in (0.1, 0.5, 0.9):
        x = torch.logaddexp(x1 + math.log(p1), x2 + math.log1p(-p1))
        if problem := _close(unmix(x, x1, p1), x2):
            return f"share {p1}: {problem}"
    return None
