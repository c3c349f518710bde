"""GloVe: word vectors fitted to the logarithm of co-occurrence counts (Pennington et al. 2014).

Two tables, w and w̃ [V, D], and two biases, b and b̃ [V]. The counts X are kept as their entries above
zero, ``rows`` and ``columns`` [N] ids and ``values`` [N]: see :mod:`lmcourse.cooccurrence`.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lmcourse import _inputs, arguments
from lmcourse.cooccurrence import compressed, cooccurrences, stable_argsort
from lmcourse.data import Vocabulary
from lmcourse.descent import side_by_side
from lmcourse.embeddings import WordVectors

__all__ = ["Glove", "GloveConfig", "cooccurrences", "glove_gradients", "glove_loss", "glove_weight", "train_glove"]

# --------------------------------------------------------------------------- the objective, plainly


def glove_weight(x: Tensor, x_max: float = 100.0, power: float = 0.75) -> Tensor:
    """f(x) = min(1, (x / x_max)^power): what an entry x > 0 counts for. Pennington et al. 2014, eq. 9."""
    _inputs.number("x_max", x_max)
    _inputs.number("power", power, 0)
    return (x / x_max).clamp(max=1) ** power


def glove_loss(
    w: Tensor,
    w_tilde: Tensor,
    b: Tensor,
    b_tilde: Tensor,
    rows: Tensor,
    columns: Tensor,
    values: Tensor,
    x_max: float = 100.0,
    power: float = 0.75,
) -> Tensor:
    """J = Σ f(X_ij) (w_i · w̃_j + b_i + b̃_j − log X_ij)², over the entries. Pennington et al. 2014, eq. 8.

    ``w``, ``w_tilde`` [V, D]; ``b``, ``b_tilde`` [V]; ``rows``, ``columns``, ``values`` [N]. A sum, not a
    mean, and without the ½ that the paper's C code puts before it.
    """
    _inputs.glove_problem(w, w_tilde, b, b_tilde, rows, columns, values)
    fit = (w[rows] * w_tilde[columns]).sum(1) + b[rows] + b_tilde[columns]  # [N]
    return (glove_weight(values, x_max, power) * (fit - torch.log(values)) ** 2).sum()


def glove_gradients(
    w: Tensor,
    w_tilde: Tensor,
    b: Tensor,
    b_tilde: Tensor,
    rows: Tensor,
    columns: Tensor,
    values: Tensor,
    x_max: float = 100.0,
    power: float = 0.75,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(∂J/∂w, ∂J/∂w̃, ∂J/∂b, ∂J/∂b̃) of :func:`glove_loss`.

    With the residual r = w_i · w̃_j + b_i + b̃_j − log X_ij and e = 2 f(X_ij) r: ∂J/∂w_i = Σ_j e w̃_j,
    ∂J/∂w̃_j = Σ_i e w_i, ∂J/∂b_i = Σ_j e, ∂J/∂b̃_j = Σ_i e. The factor 2 belongs to the square; the C
    code, which halves the loss, has none.
    """
    _inputs.glove_problem(w, w_tilde, b, b_tilde, rows, columns, values)
    fit = (w[rows] * w_tilde[columns]).sum(1) + b[rows] + b_tilde[columns]  # [N]
    e = 2 * glove_weight(values, x_max, power) * (fit - torch.log(values))
    e = e.to(w.dtype)  # values of float64 may meet tables of float32
    return (
        torch.zeros_like(w).index_add_(0, rows, e[:, None] * w_tilde[columns]),
        torch.zeros_like(w_tilde).index_add_(0, columns, e[:, None] * w[rows]),
        torch.zeros_like(b).index_add_(0, rows, e),
        torch.zeros_like(b_tilde).index_add_(0, columns, e),
    )


# ------------------------------------------------------------------------------------- training


@dataclass(frozen=True)
class GloveConfig:
    width: int = 100  # D
    epochs: int = 16  # on the course's corpora WordSim-353 rises no further
    x_max: float = 10.0  # the paper's 100 suits billions of words; in a few million, few pairs come near it
    power: float = 0.75  # the paper's
    learning_rate: float = 0.2  # AdaGrad's
    slices: int = 64  # of the entries; a step takes two, one a thread

    def __post_init__(self):
        _inputs.whole("width", self.width, most=100_000)
        _inputs.whole("epochs", self.epochs, most=1_000_000)
        _inputs.whole("slices", self.slices, most=10_000, cure="; each keeps a place for every word")
        _inputs.number("x_max", self.x_max)
        _inputs.number("power", self.power)
        _inputs.rate(self.learning_rate)


@dataclass(frozen=True)
class Glove:
    """Tables, biases, and the mean of f(X) r² over the entries in each epoch, as seen while learning."""

    w: Tensor  # [V, D]
    w_tilde: Tensor  # [V, D]
    b: Tensor  # [V]
    b_tilde: Tensor  # [V]
    losses: tuple[float, ...]

    def word_vectors(self, vocabulary: Vocabulary) -> WordVectors:
        """w + w̃, as in the paper, section 4.2: X is symmetric, so the two differ only by chance."""
        return WordVectors(vocabulary, self.w + self.w_tilde)


class _Slice:
    """Some of the entries as a sparse [V, V] matrix. Its stored values change; where they stand does not.

    The biases ride along as columns: left = [w, b, 1] and right = [w̃, 1, b̃], both [V, D + 2], so that one
    product left_i · right_j is the whole fit.
    """

    def __init__(self, rows: Tensor, columns: Tensor, values: Tensor, V: int, config: GloveConfig):
        order = stable_argsort(columns, V)
        self.by_row, self.by_column = compressed(rows, columns, V), compressed(columns[order], rows[order], V)
        self.order = order.int()
        self.weight = 2 * glove_weight(values, config.x_max, config.power).float()
        self.log_values = self.matrix(self.by_row, torch.log(values).float())

    @staticmethod
    def matrix(places: tuple[Tensor, Tensor], values: Tensor) -> Tensor:
        V = len(places[0]) - 1
        return torch.sparse_csr_tensor(*places, values, (V, V), check_invariants=False)

    def gradients(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(∂J/∂left, ∂J/∂right [V, D + 2], J) over the slice's entries; the columns of ones have none."""
        residual = torch.sparse.sampled_addmm(self.log_values, left, right.T, beta=-1).values()  # only at the entries
        error = self.weight * residual
        grad_left = self.matrix(self.by_row, error) @ right
        grad_right = self.matrix(self.by_column, error[self.order]) @ left
        grad_left[:, -1], grad_right[:, -2] = 0, 0
        return grad_left, grad_right, torch.dot(error, residual) / 2


def train_glove(
    entries: tuple[Tensor, Tensor, Tensor],
    vocabulary: Vocabulary,
    config: GloveConfig,
    generator: torch.Generator,
    progress: bool | Callable[[float], None] = False,
) -> Glove:
    """Minimises :func:`glove_loss` by AdaGrad (Duchi et al. 2011), whole slices of entries at a time.

    ``entries``: (rows, columns, values) of :func:`cooccurrences`. An entry (i, j) belongs to slice
    (i + j) mod ``slices``, so every slice holds its share of each word's entries, frequent and rare. A step
    is the exact gradient of two slices, one a thread: three products with a sparse matrix each. Sums of
    squares start at 1, as in the C code, so words with little evidence move little.

    On the CPU the seed alone decides, not the number of threads. ``progress``: True draws a line on stderr;
    a function is called with the share done.
    """
    _inputs.vocabulary(vocabulary)
    V = len(vocabulary)
    _inputs.entries(entries, V, V)
    arguments.kind("config", config, GloveConfig, "use GloveConfig()")
    arguments.cpu_generator(generator)
    report, (rows, columns, values) = _inputs.reporter(progress), entries
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta|Sparse invariant checks are implicitly")
        slices = _slices(rows, columns, values, V, config)
        tables, losses = _descend(slices, V, config, generator, report)
    # Tables of zeros have r = −log X. The 1 is a floor: where every X is near 1, zeros fit already.
    start = sum(float((s.weight * (1 + s.log_values.values() ** 2)).sum()) / 2 for s in slices)
    _inputs.learned(tables, config.learning_rate, losses[-1] / len(values), start / len(values))
    (w, b, _), (w_tilde, _, b_tilde) = (t.split([config.width, 1, 1], dim=1) for t in tables)
    parts = (w.clone(), w_tilde.clone(), b.flatten(), b_tilde.flatten())
    return Glove(*parts, tuple(loss / len(values) for loss in losses))


def _descend(slices: list[_Slice], V: int, config: GloveConfig, generator: torch.Generator, report) -> tuple:
    """((left, right) [V, D + 2] after all epochs, J of each epoch)."""
    tables = _initial_tables(V, config.width, generator, slices[0].weight.device)
    squares, losses, found = tuple(torch.ones_like(t) for t in tables), [0.0] * config.epochs, [(), ()]
    orders = [torch.randperm(len(slices), generator=generator).tolist() for _ in losses]
    steps = [(epoch, order[i : i + 2]) for epoch, order in enumerate(orders) for i in range(0, len(order), 2)]

    def measure(worker: int, pair: list[int]) -> None:
        found[worker] = slices[pair[worker]].gradients(*tables) if worker < len(pair) else ()

    def update(worker: int, epoch: int, done: float) -> None:  # one thread changes left, the other right
        gradient = sum(part[worker] for part in found if part)
        squares[worker].addcmul_(gradient, gradient)
        tables[worker].addcdiv_(gradient, squares[worker].sqrt(), value=-config.learning_rate)
        if worker == 0:
            losses[epoch] += sum(float(part[2]) for part in found if part)
            report(done)

    def calls(worker: int) -> Iterator[Callable[[], None]]:
        for k, (epoch, pair) in enumerate(steps, 1):
            yield lambda: measure(worker, pair)
            yield lambda: update(worker, epoch, k / len(steps))

    if tables[0].device.type == "cpu":
        side_by_side(calls(0), calls(1))
    else:
        for call in (call for both in zip(calls(0), calls(1), strict=True) for call in both):
            call()
    return tables, losses


def _initial_tables(V: int, width: int, generator: torch.Generator, device) -> tuple[Tensor, Tensor]:
    """w and w̃ uniform in ±0.5 / width, as in the C code; biases 0."""
    w, w_tilde = ((torch.rand(V, width, generator=generator) - 0.5) / width for _ in range(2))
    zeros, ones = torch.zeros(V, 1), torch.ones(V, 1)
    return torch.cat([w, zeros, ones], 1).to(device), torch.cat([w_tilde, ones, zeros], 1).to(device)


def _slices(rows: Tensor, columns: Tensor, values: Tensor, V: int, config: GloveConfig) -> list[_Slice]:
    """The entries dealt out, by row within each slice; slices without an entry are left out."""
    if not bool((rows[1:] >= rows[:-1]).all()):
        order = stable_argsort(rows, V)
        rows, columns, values = rows[order], columns[order], values[order]
    number = (rows + columns) % config.slices
    sizes = torch.bincount(number, minlength=config.slices).tolist()
    parts = torch.split(stable_argsort(number, config.slices), sizes)
    return [_Slice(rows[p], columns[p], values[p], V, config) for p in parts if len(p)]
