"""How often words stand near each other: the table X that GloVe fits (Pennington et al. 2014), and vectors from it
without any training (Levy, Goldberg & Dagan 2015)."""

import warnings

import numpy as np
import torch
from torch import Tensor

from lmcourse import _inputs, arguments
from lmcourse.data import Vocabulary
from lmcourse.embeddings import WordVectors

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
    window = max(1, min(window, int(np.bincount(sentence).max(initial=0))))  # no further than the longest sentence
    if 2 * bits + (window - 1).bit_length() > 63:  # two ids and the distance share 63 bits
        raise ValueError(f"window: got {window} for {V:,} words, expected a shorter one; try 10")
    parts = [(np.empty(0, np.int64), np.empty(0))]
    for start in range(0, len(ids), _CHUNK):
        part = slice(start, start + _CHUNK + window)
        parts.append(_count_chunk(ids[part], sentence[part], V, window))
        if sum(len(keys) for keys, _ in parts[1:]) > len(parts[0][0]):  # so that each entry moves seldom
            parts = [_merge(parts)]
    keys, values = _merge(parts)
    low, high = keys >> bits, keys & ((1 << bits) - 1)
    differ = low != high
    values = np.concatenate([np.where(differ, values, 2 * values), values[differ]])
    rows, columns = np.concatenate([low, high[differ]]), np.concatenate([high, low[differ]])
    order = np.argsort(rows << bits | columns)
    return tuple(torch.from_numpy(x[order]).to(stream.device) for x in (rows, columns, values))


def ppmi_vectors(
    entries: tuple[Tensor, Tensor, Tensor],
    vocabulary: Vocabulary,
    width: int,
    generator: torch.Generator,
    power: float = 0.75,
) -> WordVectors:
    """Counting alone: U √Σ of the truncated singular value decomposition of positive mutual information.

    ``entries``: (rows, columns, values) of :func:`cooccurrences`. An entry is max(0, log X_ij / (X_i q_j)) with q
    the contexts' shares to the ``power``, made to sum to 1. Levy, Goldberg & Dagan 2015, sections 2.2 and 3. The
    decomposition is the randomised one (Halko, Martinsson & Tropp 2011) with two power iterations, so the smallest
    of the ``width`` directions are approximate.
    """
    _inputs.vocabulary(vocabulary)
    V = len(vocabulary)
    _inputs.whole("width", width, most=V)
    _inputs.number("power", power, 0)
    _inputs.entries(entries, V, V)
    arguments.cpu_generator(generator)
    rows, columns, values = (t.cpu() for t in entries)
    by_row, by_column = _positive_pmi(rows, columns, values.double(), V, power)
    extra = min(V, width + 10)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta|Sparse invariant checks are implicitly")
        basis = torch.linalg.qr(by_row() @ (torch.rand(V, extra, generator=generator) - 0.5))[0]
        for _ in range(2):
            basis = torch.linalg.qr(by_row() @ torch.linalg.qr(by_column() @ basis)[0])[0]
        left, values, _ = torch.linalg.svd((by_column() @ basis).T, full_matrices=False)
    return WordVectors(vocabulary, (basis @ left * values.sqrt())[:, :width].contiguous())


def _positive_pmi(rows: Tensor, columns: Tensor, values: Tensor, V: int, power: float):
    """Two functions: the matrix of positive mutual information as sparse rows [V, V], and its transpose."""
    marginal = torch.bincount(rows, values, V)
    contexts = torch.bincount(columns, values, V) ** power
    pmi = torch.log(values / (marginal[rows] * (contexts / contexts.sum())[columns]))
    kept = pmi > 0
    rows, columns, pmi = rows[kept], columns[kept], pmi[kept].float()
    if not len(pmi):
        raise ValueError("entries: no pair is more frequent than by chance, so there is nothing to decompose")
    order = stable_argsort(rows, V)
    rows, columns, pmi = rows[order], columns[order], pmi[order]
    turned = stable_argsort(columns, V)
    csr = lambda place, x: torch.sparse_csr_tensor(*place, x, (V, V), check_invariants=False)  # noqa: E731
    straight, across = compressed(rows, columns, V), compressed(columns[turned], rows[turned], V)
    return lambda: csr(straight, pmi), lambda: csr(across, pmi[turned])


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


def stable_argsort(ids: Tensor, V: int) -> Tensor:
    """The order of ids below V, equal ones as they came; [N] int64.

    numpy sorts short integers by radix, several times faster than it or torch sorts long ones.
    """
    if ids.device.type != "cpu":
        return torch.argsort(ids, stable=True)
    return torch.from_numpy(np.argsort(ids.numpy().astype(np.uint16 if V <= 1 << 16 else np.int64), kind="stable"))


def compressed(rows: Tensor, columns: Tensor, V: int) -> tuple[Tensor, Tensor]:
    """Sorted rows as the places where each begins [V + 1], and the columns [N]: the CSR layout, in int32."""
    begins = torch.zeros(V + 1, dtype=torch.int64, device=rows.device)
    begins[1:] = torch.bincount(rows, minlength=V).cumsum(0)
    return begins.int(), columns.int()


def _check_stream(stream: Tensor, vocabulary: Vocabulary, window: int) -> None:
    _inputs.stream("stream", stream)
    _inputs.vocabulary(vocabulary)
    _inputs.whole("window", window, cure="; the paper uses 10")
    _inputs.in_vocabulary(stream, vocabulary.boundary)
