"""GloVe: word vectors fitted to the logarithm of co-occurrence counts (Pennington et al. 2014).

Two tables, w and w̃ [V, D], and two biases, b and b̃ [V]. The counts X are kept as their entries above
zero: ``rows`` and ``columns`` [N] ids and ``values`` [N].
"""

import numpy as np
import torch
from torch import Tensor

from lmcourse.data import Vocabulary

# ---------------------------------------------------------------------------------------- counts

_CHUNK = 1 << 19  # words counted at a time: bounds the memory that counting takes beside its result


def cooccurrences(stream: Tensor, vocabulary: Vocabulary, window: int = 10) -> tuple[Tensor, Tensor, Tensor]:
    """(rows [N], columns [N] int64, values [N] float64): each pair of words at distance d counts 1/d.

    ``stream``: [T] ids, ``vocabulary.boundary`` between sentences. Both directions are counted, so X is
    symmetric, and two occurrences of one word give its diagonal entry 2/d. No pair crosses a sentence
    (the C code of the paper keeps within a line). Distance is counted in known words, as in the C code.
    Sorted by row, then column. Pennington et al. 2014, section 4.2.
    """
    _check_stream(stream, vocabulary, window)
    ids, V = stream.cpu().numpy(), len(vocabulary)
    sentence, bits = np.cumsum(ids == V), V.bit_length()
    parts = [(np.empty(0, np.int64), np.empty(0))]
    for start in range(0, len(ids), _CHUNK):
        part = slice(start, start + _CHUNK + window)
        parts.append(_count_chunk(ids[part], sentence[part], V, window))
        if sum(len(keys) for keys, _ in parts[1:]) > len(parts[0][0]):  # so that each entry moves seldom
            parts = [_merge(parts)]
    keys, values = _merge(parts)
    high = keys & ((1 << bits) - 1)
    differ = keys >> bits != high
    mirrored = (high << bits | keys >> bits)[differ], values[differ]
    keys, values = _merge([(keys, np.where(differ, values, 2 * values)), mirrored])
    return tuple(torch.from_numpy(x).to(stream.device) for x in (keys >> bits, keys & ((1 << bits) - 1), values))


def _count_chunk(ids: np.ndarray, sentence: np.ndarray, V: int, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys (low id, high id), rising, and Σ 1/d, for the pairs whose first word is one of the chunk's own."""
    bits, distance_bits, packed = V.bit_length(), (window - 1).bit_length(), [np.empty(0, np.int64)]
    for d in range(1, min(window, len(ids) - 1) + 1):
        pairs = min(_CHUNK, len(ids) - d)
        kept = (sentence[:pairs] == sentence[d : d + pairs]) & (ids[:pairs] != V)
        first, second = ids[:pairs][kept], ids[d : d + pairs][kept]
        # The distance rides in the lowest bits, so that one sort of plain numbers gathers each pair's distances.
        key = np.minimum(first, second) << bits | np.maximum(first, second)
        packed.append(key << distance_bits | (d - 1))
    packed = np.sort(np.concatenate(packed))
    weight = 1 / np.arange(1, window + 1)
    return _sum_equal(packed >> distance_bits, weight[packed & ((1 << distance_bits) - 1)])


def _merge(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    keys, values = (np.concatenate(x) for x in zip(*parts, strict=True))
    order = np.argsort(keys, kind="stable")  # cheap where runs are sorted already
    return _sum_equal(keys[order], values[order])


def _sum_equal(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys of a sorted list, and the sum of the values of each."""
    starts = np.flatnonzero(np.concatenate([[True] * (len(keys) > 0), keys[1:] != keys[:-1]]))
    return keys[starts], np.add.reduceat(values, starts) if len(starts) else values


# --------------------------------------------------------------------------- the objective, plainly


def glove_weight(x: Tensor, x_max: float = 100.0, power: float = 0.75) -> Tensor:
    """f(x) = min(1, (x / x_max)^power): what an entry x > 0 counts for. Pennington et al. 2014, eq. 9."""
    if not 0 < x_max < float("inf"):
        raise ValueError(f"x_max: got {x_max!r}, expected a number above 0; the paper uses 100")
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
    _check_problem(w, w_tilde, b, b_tilde, rows, columns, values)
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
    _check_problem(w, w_tilde, b, b_tilde, rows, columns, values)
    fit = (w[rows] * w_tilde[columns]).sum(1) + b[rows] + b_tilde[columns]  # [N]
    e = 2 * glove_weight(values, x_max, power) * (fit - torch.log(values))
    return (
        torch.zeros_like(w).index_add_(0, rows, e[:, None] * w_tilde[columns]),
        torch.zeros_like(w_tilde).index_add_(0, columns, e[:, None] * w[rows]),
        torch.zeros_like(b).index_add_(0, rows, e),
        torch.zeros_like(b_tilde).index_add_(0, columns, e),
    )


# -------------------------------------------------------------------------------------- bad input


def _check_stream(stream: Tensor, vocabulary: Vocabulary, window: int) -> None:
    if not isinstance(stream, Tensor) or stream.dtype != torch.int64 or stream.ndim != 1:
        came = f"{stream.dtype} {list(stream.shape)}" if isinstance(stream, Tensor) else type(stream).__name__
        raise TypeError(f"stream: got {came}, expected a [T] int64 tensor of ids; use vocabulary.stream(sentences)")
    if not isinstance(window, int) or isinstance(window, bool) or window < 1:
        raise ValueError(f"window: got {window!r}, expected a whole number from 1 on; the paper uses 10")
    if len(stream) and (int(stream.min()) < 0 or int(stream.max()) > len(vocabulary)):
        raise ValueError(
            f"stream: got ids from {int(stream.min())} to {int(stream.max())}, expected 0 to {len(vocabulary)} "
            "(the boundary); make the stream with the same vocabulary"
        )


def _check_problem(w, w_tilde, b, b_tilde, rows, columns, values) -> None:
    if w.ndim != 2 or w_tilde.ndim != 2 or w.shape[1] != w_tilde.shape[1]:
        raise ValueError(f"w, w_tilde: got shapes {list(w.shape)}, {list(w_tilde.shape)}, expected [V, D] both")
    for name, bias, table in (("b", b, w), ("b_tilde", b_tilde, w_tilde)):
        if bias.shape != table.shape[:1]:
            raise ValueError(f"{name}: got shape {list(bias.shape)}, expected [{len(table)}]: one number a row")
    _check_entries(rows, columns, values, len(w), len(w_tilde))


def _check_entries(rows: Tensor, columns: Tensor, values: Tensor, V: int, contexts: int) -> None:
    if not rows.shape == columns.shape == values.shape or values.ndim != 1:
        shapes = ", ".join(str(list(x.shape)) for x in (rows, columns, values))
        raise ValueError(f"rows, columns, values: got shapes {shapes}, expected [N] three times: one of each an entry")
    if not len(values):
        raise ValueError("values: got no entry, so there is nothing to fit; a sentence needs two known words")
    if not bool(((values > 0) & torch.isfinite(values)).all()):
        raise ValueError(f"values: got {float(values.min())!r} among them, expected numbers above 0: leave the zeros out")
    for name, ids, size in (("rows", rows, V), ("columns", columns, contexts)):
        if int(ids.min()) < 0 or int(ids.max()) >= size:
            raise ValueError(f"{name}: got ids from {int(ids.min())} to {int(ids.max())}, expected 0 to {size - 1}")
