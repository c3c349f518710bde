"""What the modules of word vectors ask of their arguments: each message says what came, what was expected, the cure."""

import math
import sys
from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

from lmcourse.arguments import came, kind
from lmcourse.data import Vocabulary


def whole(name: str, value, least: int = 1, most: float = math.inf, cure: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}: got {value!r}, expected a whole number from {least} on{cure}")
    if value > most:
        raise ValueError(f"{name}: got {value}, expected at most {most:,}{cure}")


def number(name: str, value, least: float | None = None, most: float = math.inf) -> None:
    """A finite number from ``least`` on, or above 0 where that is not given, up to ``most``."""
    expected = "a number above 0" if least is None else f"a number from {least} on"
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name}: got {value!r}, expected {expected}")
    if not math.isfinite(value) or value < (least or 0) or (least is None and value == 0):
        raise ValueError(f"{name}: got {value!r}, expected {expected}")
    if value > most:
        raise ValueError(f"{name}: got {value!r}, expected at most {most:g}")


def rate(value) -> None:
    """A learning rate that neither overflows nor vanishes in float32."""
    number("learning_rate", value, most=1e30)
    if value < 1e-30:
        raise ValueError(f"learning_rate: got {value!r}, expected at least 1e-30; less changes nothing")


def vocabulary(value) -> None:
    kind("vocabulary", value, Vocabulary, "the one that made the ids")


def ids(name: str, value, size: int, shape: tuple[int | None, ...]) -> None:
    """int64 ids below ``size`` in a tensor of ``shape``, where None is any length."""
    if not isinstance(value, Tensor) or value.dtype != torch.int64:
        raise TypeError(f"{name}: got {came(value)}, expected an int64 tensor of ids; use torch.tensor([...])")
    if value.ndim != len(shape) or any(e not in (None, n) for e, n in zip(shape, value.shape)):
        expected = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"{name}: got shape {list(value.shape)}, expected [{expected}]: one id a place")
    if value.numel() and (int(value.min()) < 0 or int(value.max()) >= size):
        low, high = int(value.min()), int(value.max())
        raise ValueError(f"{name}: got ids from {low} to {high}, expected 0 to {size - 1}; each names a row")


def stream(name: str, value) -> None:
    if not isinstance(value, Tensor) or value.dtype != torch.int64 or value.ndim != 1:
        raise TypeError(
            f"{name}: got {came(value)}, expected a [T] int64 tensor of ids; use vocabulary.stream(sentences)"
        )


def same_length(stream: Tensor, centre_stream: Tensor) -> None:
    if stream.shape != centre_stream.shape or stream.device != centre_stream.device:
        raise ValueError(
            f"centre_stream: got {len(centre_stream)} ids on {centre_stream.device}, expected one for each of "
            f"stream's {len(stream)} on {stream.device}; start from stream.clone()"
        )


def in_vocabulary(stream: Tensor, boundary: int) -> None:
    if len(stream) and (int(stream.min()) < 0 or int(stream.max()) > boundary):
        raise ValueError(
            f"stream: got ids from {int(stream.min())} to {int(stream.max())}, expected 0 to {boundary} "
            "(the boundary); make the stream with the same vocabulary"
        )


def amounts(name: str, value, shape: tuple[int | None, ...]) -> None:
    """Numbers from 0 on, not all 0, in a tensor of ``shape``, where None is any length: counts, probabilities."""
    if not isinstance(value, Tensor) or value.dtype == torch.bool or value.is_complex():
        raise TypeError(f"{name}: got {came(value)}, expected a tensor of numbers; use torch.tensor([...])")
    if value.ndim != len(shape) or any(e not in (None, n) for e, n in zip(shape, value.shape)):
        expected = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"{name}: got shape {list(value.shape)}, expected [{expected}]: one number a place")
    bad = ~((value >= 0) & torch.isfinite(value))
    if bool(bad.any()):
        raise ValueError(f"{name}: got {value[bad][0].item()!r} among them, expected finite numbers from 0 on")
    if not bool((value > 0).any()):
        raise ValueError(f"{name}: got nothing above 0, so there are no shares of it; count a text with words")


def tables(**named) -> None:
    """[rows, D] tables of one floating type and one D."""
    (first, v), (second, u) = named.items()
    for name, table in named.items():
        if not isinstance(table, Tensor) or not table.is_floating_point() or table.dtype != getattr(v, "dtype", None):
            raise TypeError(f"{name}: got {came(table)}, expected a floating tensor of one type with {first}; use .to")
    if v.ndim != 2 or u.ndim != 2 or v.shape[1] != u.shape[1]:
        raise ValueError(
            f"{first}, {second}: got shapes {list(v.shape)}, {list(u.shape)}, expected [V, D] both; rows are words"
        )


def glove_problem(w, w_tilde, b, b_tilde, rows, columns, values) -> None:
    tables(w=w, w_tilde=w_tilde)
    for name, bias, table in (("b", b, w), ("b_tilde", b_tilde, w_tilde)):
        if not isinstance(bias, Tensor) or bias.dtype != w.dtype:
            raise TypeError(f"{name}: got {came(bias)}, expected a tensor of {w.dtype}, like w; use .to(w)")
        if bias.shape != table.shape[:1]:
            raise ValueError(f"{name}: got shape {list(bias.shape)}, expected [{len(table)}]: one number a row")
    entries((rows, columns, values), len(w), len(w_tilde))


def entries(value: tuple[Tensor, Tensor, Tensor], V: int, contexts: int) -> None:
    several = isinstance(value, tuple | list)
    if not several or len(value) != 3 or not all(isinstance(x, Tensor) for x in value):
        parts = [came(x) for x in value] if several and len(value) < 10 else came(value)
        raise TypeError(f"entries: got {parts}, expected three tensors (rows, columns, values); use cooccurrences(…)")
    rows, columns, values = value
    if not rows.shape == columns.shape == values.shape or values.ndim != 1:
        shapes = ", ".join(str(list(x.shape)) for x in value)
        raise ValueError(f"rows, columns, values: got shapes {shapes}, expected [N] three times: one of each an entry")
    if not len(values):
        raise ValueError("values: got no entry, so there is nothing to fit; a sentence needs two known words")
    if values.dtype == torch.bool or values.is_complex():
        raise TypeError(f"values: got {came(values)}, expected numbers above 0; use values.double()")
    bad = ~((values > 0) & torch.isfinite(values))
    if bool(bad.any()):
        first = values[bad][0].item()
        raise ValueError(f"values: got {first!r} among them, expected finite numbers above 0; leave zeros out")
    ids("rows", rows, V, (None,))
    ids("columns", columns, contexts, (None,))


def learned(values: tuple[Tensor, ...], learning_rate: float, last: float, start: float) -> None:
    """Raise where training diverged: a number that is not finite, or a last loss above twice that of ``start``.

    ``start``: the loss of tables that know nothing. Whatever learns at all ends below it; twice leaves room for a
    last step or epoch that overshot, while a learning rate that is too large misses it many times over.
    """
    if not (math.isfinite(last) and all(bool(torch.isfinite(t).all()) for t in values)):
        raise ValueError(f"learning_rate: training diverged at {learning_rate}; lower it")
    if last > 2 * start:
        raise ValueError(
            f"learning_rate: training diverged at {learning_rate}; lower it. The last loss is {last:.3g}, "
            f"where tables that know nothing have {start:.3g}"
        )


def reporter(progress: bool | Callable[[float], None]) -> Callable[[float], None]:
    """The function to tell the share done: ``progress`` itself, one that draws a line, or one that does nothing."""
    if callable(progress) and not isinstance(progress, type):
        return progress
    if not isinstance(progress, bool):
        raise TypeError(f"progress: got {progress!r}, expected True, False or a function of the share done")
    return _line() if progress else lambda done: None


def _line() -> Callable[[float], None]:
    """Draws on stderr, and again only when the text is another one."""
    drawn = ""

    def draw(done: float) -> None:
        nonlocal drawn
        text = f"\rtraining {done:4.0%}" + "\n" * (done >= 1)
        if text != drawn:
            print(text, end="", file=sys.stderr, flush=True)
        drawn = text

    return draw
