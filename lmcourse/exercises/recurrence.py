"""Self-checks of *Language models and the vanishing gradient*."""

import math
from collections.abc import Callable, Iterator

import torch
from lmcourse.checks import close, raises
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Items = Iterator[tuple[str, Callable]]


class _Counting(TorchDispatchMode):
    """How many operations on tensors run inside the ``with`` block."""

    def __init__(self):
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations += 1
        return func(*args, **(kwargs or {}))


class _Leaving(TorchFunctionMode):
    """Whether a tensor leaves for lists or numpy inside the ``with`` block, where no operation is counted."""

    def __init__(self):
        super().__init__()
        self.by = ""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (Tensor.tolist, Tensor.numpy, Tensor.__array__):
            self.by = func.__name__
        return func(*args, **(kwargs or {}))


def _tensor(*numbers) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _drawn(*shape) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


# ----------------------------------------------------------------------------------------- linear_scan


def _one_after_the_other(a, b, h0):
    """The recurrence as it is defined, for one unit, in plain numbers."""
    h, found = h0, []
    for factor, addend in zip(a, b):
        h = factor * h + addend
        found.append(h)
    return found


def _scan(linear_scan) -> Items:
    """linear_scan(a, b, h0): a and b (T, D), h0 (D,) → all h_t = a_t ⊙ h_{t-1} + b_t, (T, D)."""
    column = lambda *numbers: _tensor(*numbers)[:, None]  # noqa: E731

    yield "three steps by hand", lambda: close(
        linear_scan(column(2.0, 3.0, 0.5), column(1.0, 0.0, 4.0), _tensor(1.0)), [[3.0], [9.0], [8.5]]
    )
    yield "one step", lambda: close(linear_scan(column(0.5), column(1.0), _tensor(4.0)), [[3.0]])

    def lengths():
        for T in (2, 3, 5, 7, 8, 13):  # powers of two and others
            a, b, h0 = _drawn(T, 2), _drawn(T + 1, 2)[1:], _drawn(2)
            expected = [_one_after_the_other(a[:, i].tolist(), b[:, i].tolist(), float(h0[i])) for i in range(2)]
            if problem := close(linear_scan(a, b, h0), torch.tensor(expected, dtype=torch.float64).T):
                return f"T = {T}: {problem}"

    yield "any length, two units", lengths
    yield "a factor of 0 forgets everything", lambda: close(
        linear_scan(column(3.0, 0.0, 2.0), column(1.0, 5.0, 1.0), _tensor(7.0)), [[22.0], [5.0], [11.0]]
    )

    def long():
        h = linear_scan(torch.full((2000, 1), 0.1).double(), torch.full((2000, 1), 0.9).double(), _tensor(1.0))
        return close(h, torch.ones(2000, 1))

    yield "2,000 steps with factors of 0.1 stay finite", long

    def rounds():
        a, b, h0 = _drawn(4096, 1), _drawn(4096, 1), _drawn(1)
        with _Counting() as counted, _Leaving() as left:
            h = linear_scan(a, b, h0)
        if not isinstance(h, torch.Tensor) or h.shape != a.shape:
            return "no tensor of the shape of a came back"
        if left.by:
            return f"numbers are taken out of the tensors by {left.by}, expected operations on whole tensors"
        if counted.operations > 480:
            return f"{counted.operations} operations on tensors for T = 4096, expected at most 40 for each of 12 rounds"

    yield "few rounds: at most 480 operations for T = 4096", rounds

    def unchanged():
        a, b, h0 = _drawn(6, 1), _drawn(6, 1), _drawn(1)
        kept = a.clone(), b.clone(), h0.clone()
        if not isinstance(linear_scan(a, b, h0), torch.Tensor):
            return "no tensor came back"
        if not all(torch.equal(x, y) for x, y in zip((a, b, h0), kept)):
            return "a, b or h0 was changed in place"

    yield "the arguments are left as they were", unchanged


# ----------------------------------------------------------------------------------------- scaled_bound


def _bound(scaled_bound) -> Items:
    """scaled_bound(jacobians, scale): (n, S, S) and (S,) → the logarithm of the bound, a 0-dimensional tensor."""
    swap = _tensor(0.0, 4.0, 1.0, 0.0).view(1, 2, 2)  # norm 4, and norm 2 in the right lengths

    yield "one matrix by hand, scale 1 and 2", lambda: close(scaled_bound(swap, _tensor(1.0, 2.0)), 2 * math.log(2))
    yield "ten of them", lambda: close(scaled_bound(swap.expand(10, 2, 2), _tensor(1.0, 2.0)), 11 * math.log(2))
    yield "equal scales give the product of norms", lambda: close(
        scaled_bound(swap.expand(10, 2, 2), _tensor(1.0, 1.0)), 10 * math.log(4)
    )
    yield "the unit of the scale does not matter", lambda: close(
        scaled_bound(swap.expand(3, 2, 2), _tensor(10.0, 20.0)), 4 * math.log(2)
    )

    def bounds():
        for seed in range(20):
            generator = torch.Generator().manual_seed(seed)
            jacobians = torch.rand(6, 3, 3, generator=generator, dtype=torch.float64) - 0.5
            scale = torch.rand(3, generator=generator, dtype=torch.float64) + 0.1
            product = torch.linalg.multi_dot(list(jacobians.flip(0)))
            truth, got = float(torch.linalg.matrix_norm(product, 2).log()), scaled_bound(jacobians, scale)
            if not isinstance(got, torch.Tensor):
                return f"got {type(got).__name__}, expected a tensor"
            if not got >= truth - 1e-9:
                return f"got {got:.4g} for a product whose norm has the logarithm {truth:.4g}: not a bound"

    yield "it is a bound", bounds

    def different():
        first, second = _tensor(3.0, 0.0, 0.0, 1.0).view(2, 2), _tensor(0.0, 4.0, 1.0, 0.0).view(2, 2)
        return close(scaled_bound(torch.stack([first, second]), _tensor(1.0, 2.0)), math.log(12))

    yield "matrices that differ", different
    yield "the largest scale first", lambda: close(scaled_bound(swap, _tensor(2.0, 1.0)), 4 * math.log(2))
    yield "a matrix without zeros", lambda: close(
        scaled_bound(_tensor(1.0, 1.0, 1.0, -1.0).view(1, 2, 2), _tensor(1.0, 1.0)), math.log(2) / 2
    )

    def tiny():
        small = 1e-3 * torch.eye(2, dtype=torch.float64).expand(400, 2, 2)
        return close(scaled_bound(small, _tensor(1.0, 1.0)), -400 * math.log(1000))

    yield "a product far below the smallest float64", tiny
    yield "a scale of 0 is refused", lambda: raises(scaled_bound, swap, _tensor(1.0, 0.0))
    yield "a negative scale is refused", lambda: raises(scaled_bound, swap, _tensor(-1.0, 1.0))


CHECKS = {"linear-scan": _scan, "scaled-bound": _bound}
