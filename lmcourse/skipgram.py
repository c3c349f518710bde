"""Skip-gram's losses and gradients in their plain form, pair by pair (Mikolov et al. 2013).

Two tables, as in the papers: row w of ``v`` [V, D] is word w as a *centre* (input), row c of ``u``
[C, D] is word c as a *context* (output); their score is s(w, c) = v_w · u_c. Every loss here is a
**mean over pairs**, in nats, and every gradient is the gradient of that mean.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from lmcourse import _inputs, arguments

# ----------------------------------------------------------------------------------------- pairs


def skipgram_pairs(stream: Tensor, boundary: int, window: int, centre_stream: Tensor | None = None) -> Tensor:
    """[P, 2] (centre, context) ids: every two words of a sentence at a distance of 1 to ``window``.

    ``stream``: [T] ids, ``boundary`` between sentences (:meth:`Vocabulary.stream`); no pair crosses it.
    ``centre_stream``: [T] ids to use on the centre's side instead. In order of the centre's position.
    """
    _check_stream(stream, boundary, window, centre_stream)
    window = min(window, max(len(stream), 1))
    positions = torch.arange(len(stream))
    offsets = torch.tensor([d for d in range(-window, window + 1) if d != 0])
    neighbours = positions[:, None] + offsets  # [T, 2·window]
    inside = (neighbours >= 0) & (neighbours < len(stream))
    neighbours = neighbours.clamp(0, max(len(stream) - 1, 0))
    sentence = torch.cumsum(stream == boundary, 0)
    is_word = stream != boundary
    kept = inside & is_word[:, None] & is_word[neighbours] & (sentence[:, None] == sentence[neighbours])
    centres = (stream if centre_stream is None else centre_stream)[:, None].expand_as(neighbours)
    return torch.stack([centres[kept], stream[neighbours[kept]]], dim=1)


def pair_counts(pairs: Tensor, centres: int, contexts: int) -> Tensor:
    """[centres, contexts] int64: how often each (centre, context) stands in ``pairs`` [P, 2]."""
    _inputs.whole("centres", centres)
    _inputs.whole("contexts", contexts)
    _inputs.ids("pairs", pairs, max(centres, contexts), (None, 2))
    for name, column, size in (("pairs[:, 0]", pairs[:, 0], centres), ("pairs[:, 1]", pairs[:, 1], contexts)):
        _inputs.ids(name, column, size, (None,))
    return torch.bincount(pairs[:, 0] * contexts + pairs[:, 1], minlength=centres * contexts).view(centres, contexts)


def window_counts(stream: Tensor, boundary: int, window: int, words: int) -> tuple[Tensor, Tensor]:
    """([words, words] expected pair counts, [boundary] expected pairs of each centre), float64.

    Each centre draws its window from 1..``window``, as word2vec does, so a pair at distance d counts with the
    probability (window − d + 1) / window that the window reaches it. The table holds the ids below ``words``; the
    totals hold all contexts. ``stream``: [T] ids, ``boundary`` between sentences; every other id lies below it.
    Both directions are counted, so the table is symmetric.
    """
    _check_stream(stream, boundary, window, None)
    _inputs.in_vocabulary(stream, boundary)
    _inputs.whole("words", words, most=boundary)
    sentence = torch.cumsum(stream == boundary, 0)
    table, totals = torch.zeros(words * words).double(), torch.zeros(boundary).double()
    for d in range(1, min(window, len(stream) - 1) + 1):
        inside = (sentence[:-d] == sentence[d:]) & (stream[:-d] != boundary)
        a, b = stream[:-d][inside], stream[d:][inside]
        reach = (window - d + 1) / window
        totals += reach * (torch.bincount(a, minlength=boundary) + torch.bincount(b, minlength=boundary)).double()
        both = (a < words) & (b < words)
        table += reach * torch.bincount(a[both] * words + b[both], minlength=words * words).double()
    table = table.view(words, words)
    return table + table.T, totals


# ---------------------------------------------------------------------------------- full softmax


def softmax_loss(v: Tensor, u: Tensor, centres: Tensor, contexts: Tensor) -> Tensor:
    """Mean of −log p(c|w), p(c|w) = exp(v_w·u_c) / Σ_c' exp(v_w·u_c'). Mikolov et al. 2013b, eq. 1 and 2.

    ``v`` [V, D], ``u`` [C, D]; ``centres`` and ``contexts`` [P] ids.
    """
    _check_pairs(v, u, centres, contexts)
    scores = v[centres] @ u.T  # [P, C]
    return -torch.log_softmax(scores, dim=1).gather(1, contexts[:, None]).mean()


def softmax_gradients(v: Tensor, u: Tensor, centres: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
    """(∂/∂v, ∂/∂u) of :func:`softmax_loss`: expected minus observed contexts.

    For one pair: ∂/∂v_w = Σ_c' p(c'|w) u_c' − u_c and ∂/∂u_c' = (p(c'|w) − [c' = c]) v_w.
    """
    _check_pairs(v, u, centres, contexts)
    p = torch.softmax(v[centres] @ u.T, dim=1)  # [P, C]
    error = (p - F.one_hot(contexts, len(u))) / len(centres)
    return torch.zeros_like(v).index_add_(0, centres, error @ u), error.T @ v[centres]


# ----------------------------------------------------------------------------- negative sampling


def negative_sampling_loss(
    v: Tensor, u: Tensor, centres: Tensor, contexts: Tensor, negatives: Tensor, weight: float = 1.0
) -> Tensor:
    """Mean of −log σ(u_c·v_w) − weight · Σ_i log σ(−u_{n_i}·v_w). Mikolov et al. 2013b, eq. 4.

    ``centres`` and ``contexts`` [P], ``negatives`` [P, K] ids drawn from the noise. With
    weight = k / K, K draws stand for k: the same expectation, less variance.
    """
    _check_pairs(v, u, centres, contexts, negatives, weight)
    positive = (v[centres] * u[contexts]).sum(1)  # [P]
    negative = torch.einsum("pd,pkd->pk", v[centres], u[negatives])
    # The log-sigmoid first, then the sum: the other order is another (wrong) loss.
    return -(F.logsigmoid(positive) + weight * F.logsigmoid(-negative).sum(1)).mean()


def negative_sampling_gradients(
    v: Tensor, u: Tensor, centres: Tensor, contexts: Tensor, negatives: Tensor, weight: float = 1.0
) -> tuple[Tensor, Tensor]:
    """(∂/∂v, ∂/∂u) of :func:`negative_sampling_loss`.

    For one pair, with e = σ(s) − 1 for the context and e = weight · σ(s) for each negative:
    ∂/∂v_w = Σ e u and ∂/∂u = e v_w.
    """
    _check_pairs(v, u, centres, contexts, negatives, weight)
    columns = torch.cat([contexts[:, None], negatives], dim=1)  # [P, 1+K]
    error = torch.sigmoid(torch.einsum("pd,pkd->pk", v[centres], u[columns]))
    error[:, 0] -= 1
    error[:, 1:] *= weight
    error /= len(centres)
    grad_v = torch.zeros_like(v).index_add_(0, centres, torch.einsum("pk,pkd->pd", error, u[columns]))
    each = error[:, :, None] * v[centres][:, None, :]  # [P, 1+K, D]
    return grad_v, torch.zeros_like(u).index_add_(0, columns.flatten(), each.flatten(0, 1))


def noise_distribution(counts: Tensor, power: float = 0.75) -> Tensor:
    """[V] probabilities ∝ count^power, float64: where negatives are drawn from."""
    _inputs.amounts("counts", counts, (None,))
    _inputs.number("power", power, 0)
    weights = counts.double() ** power
    if not 0 < float(weights.sum()) < float("inf"):
        raise ValueError(f"power: got {power!r}, expected one for which counts ** power is a finite number; try 0.75")
    return weights / weights.sum()


def keep_probability(counts: Tensor, threshold: float = 1e-3) -> Tensor:
    """[V] float64: the share of a word's occurrences that subsampling keeps, by the rule of word2vec.c.

    min(1, (√(f/t) + 1) · t/f) for a word that makes up the share f of the text: kept whole up to
    f = 2.618 t. The paper's rule, √(t/f), is another one. ``threshold`` 0 keeps everything.
    """
    _inputs.amounts("counts", counts, (None,))
    _inputs.number("threshold", threshold, 0)
    if threshold == 0:
        return torch.ones(len(counts), dtype=torch.float64)
    if threshold < 1e-30:
        raise ValueError(f"threshold: got {threshold!r}, expected at least 1e-30, or 0 to keep everything")
    share = counts.double() / counts.sum()
    return ((torch.sqrt(share / threshold) + 1) * threshold / share).clamp(max=1)


def expected_negative_sampling_loss(scores: Tensor, counts: Tensor, noise: Tensor, negatives: float) -> Tensor:
    """The loss per pair with the noise summed out: what the sampled loss is on average.

    (1/P) Σ_{w,c} [n(w,c) · −log σ(s) + k n(w) q(c) · −log σ(−s)], n(w) = Σ_c n(w,c), P = Σ n.
    ``scores`` and ``counts`` [V, C], ``noise`` [C] sums to 1, ``negatives`` k.
    """
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        raise TypeError(f"scores: got {arguments.came(scores)}, expected a floating tensor [V, C]; v @ u.T")
    _check_noise(counts, noise, negatives)
    if scores.shape != counts.shape:
        raise ValueError(f"scores: got shape {list(scores.shape)}, expected that of counts, {list(counts.shape)}")
    counts = counts.to(scores.dtype)
    drawn = negatives * counts.sum(1, keepdim=True) * noise.to(scores.dtype)
    return -(counts * F.logsigmoid(scores) + drawn * F.logsigmoid(-scores)).sum() / counts.sum()


def negative_sampling_optimum(counts: Tensor, noise: Tensor, negatives: float) -> Tensor:
    """[V, C] float64 scores that minimise the expected loss where they are free: log p(c|w)/q(c) − log k.

    −∞ where ``counts`` [V, C] is 0; a row without any pair is NaN, since no score of it matters.
    Levy & Goldberg 2014, with the noise ``noise`` [C] kept general.
    """
    _check_noise(counts, noise, negatives)
    conditional = counts.double() / counts.sum(1, keepdim=True)
    return torch.log(conditional / (negatives * noise.double()))


# -------------------------------------------------------------------------------------- bad input


def _check_stream(stream: Tensor, boundary: int, window: int, centre_stream: Tensor | None) -> None:
    _inputs.stream("stream", stream)
    if not isinstance(boundary, int) or isinstance(boundary, bool):
        raise TypeError(f"boundary: got {boundary!r}, expected an id; use vocabulary.boundary")
    _inputs.whole("window", window)
    if centre_stream is not None:
        _inputs.stream("centre_stream", centre_stream)
        _inputs.same_length(stream, centre_stream)


def _check_pairs(v, u, centres, contexts, negatives=None, weight=1.0) -> None:
    _inputs.tables(v=v, u=u)
    _inputs.ids("centres", centres, len(v), (None,))
    if not len(centres):
        raise ValueError("centres: got no id, so there is no pair to take a mean over; a sentence needs two words")
    _inputs.ids("contexts", contexts, len(u), (len(centres),))
    if negatives is not None:
        _inputs.ids("negatives", negatives, len(u), (len(centres), None))
    _inputs.number("weight", weight, 0)


def _check_noise(counts: Tensor, noise: Tensor, negatives: float) -> None:
    _inputs.amounts("counts", counts, (None, None))
    _inputs.amounts("noise", noise, (counts.shape[1],))
    if abs(float(noise.double().sum()) - 1) > 1e-6:
        raise ValueError(f"noise: got a sum of {float(noise.sum()):.6g}, expected 1; use noise_distribution(counts)")
    _inputs.number("negatives", negatives)
