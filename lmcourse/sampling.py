"""From scores to the next token: temperature, top-k, top-p, and the draw.

A sampling rule maps the scores of the next token, (..., V), to a distribution over the vocabulary. Each rule here is
one function from scores to scores, which gives what it excludes the score -∞ and thereby probability exactly 0.
``distribution`` applies them in a fixed order: temperature, top-k, top-p, softmax. Equal scores rank by id, the lower
id first, so that the greatest score, ``top_k=1`` and the limit of temperature 0 are the same token.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from lmcourse.arguments import came, is_number, whole

ROUNDING = 1e-6  # sums of float32 probabilities that differ by less count as equal


def temper(scores: Tensor, temperature: float) -> Tensor:
    """The scores of softmax(z/τ), the greatest of them moved to 0: all distances grow by 1/τ. Shape kept.

    Below 1 the distribution sharpens, above 1 it flattens. For the limit of 0 see ``distribution``.
    """
    check(scores, temperature=temperature)
    if temperature == 0:
        raise ValueError("temperature: got 0, expected a number above 0; distribution takes the limit")
    scores = scores - scores.amax(-1, keepdim=True)  # first, so that a small τ cannot make the greatest score infinite
    return scores / max(temperature, torch.finfo(scores.dtype).tiny)


def keep_top_k(scores: Tensor, k: int) -> Tensor:
    """The ``k`` greatest scores, -∞ elsewhere; of equal scores the lower ids. Shape kept.

    Fan et al. 2018, section 5.4.
    """
    check(scores, top_k=k)
    least = scores.topk(k).values[..., -1:]  # (..., 1): the k-th greatest
    above, equal = scores > least, scores == least
    places = k - above.sum(-1, keepdim=True)  # left for those equal to the k-th
    return scores.masked_fill(~(above | equal & (equal.cumsum(-1) <= places)), -torch.inf)


def keep_top_p(scores: Tensor, p: float) -> Tensor:
    """The smallest set of tokens whose probabilities together reach ``p`` ("nucleus"), -∞ elsewhere. Shape kept.

    Tokens are taken from the most probable on, of equal ones the lower ids first; the one with which the sum reaches
    ``p`` is the last, so there is at least one. p = 1 keeps all. Holtzman et al. 2020, equations 2 and 3.
    """
    check(scores, top_p=p)
    if p == 1:
        return scores
    mass, ids = F.softmax(scores, dim=-1).sort(dim=-1, descending=True, stable=True)
    before = mass.cumsum(-1) - mass  # the sum of the tokens ahead of each
    kept = before < p - ROUNDING
    kept[..., 0] = True
    return scores.masked_fill(~torch.zeros_like(kept).scatter(-1, ids, kept), -torch.inf)


def distribution(
    scores: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """The probabilities of the next token, (..., V) → (..., V): temperature, then top-k, then top-p, then softmax.

    Temperature 0 is the limit: probability 1 for the greatest score, the lowest id where several are equal. Scores in
    half precision are read as float32.
    """
    check(scores, temperature, top_k, top_p)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if temperature == 0:
        return F.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)
    scores = temper(scores, temperature)
    scores = scores if top_k is None else keep_top_k(scores, top_k)
    scores = scores if top_p is None else keep_top_p(scores, top_p)
    return F.softmax(scores, dim=-1)


def draw(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """The first token at which the running sum of ``probabilities`` (B, V) exceeds ``uniform`` (B,): (B,) ids.

    For numbers uniform on [0, 1) each token comes with its probability, and one of probability 0 never (inverse
    transform sampling). The sum is taken on the CPU in float64: equal probabilities give equal tokens on any device.
    """
    if not isinstance(probabilities, Tensor) or probabilities.ndim != 2 or not probabilities.is_floating_point():
        raise TypeError(f"probabilities: got {came(probabilities)}, expected floating point (B, V)")
    right = isinstance(uniform, Tensor) and uniform.shape == probabilities.shape[:1]
    if not right or not bool(((uniform >= 0) & (uniform < 1)).all()):
        raise ValueError(f"uniform: got {came(uniform)}, expected a number from 0 on, below 1, for each of the rows")
    sums = probabilities.cpu().double().cumsum(-1)
    if not bool((probabilities >= 0).all()) or not bool(((sums[:, -1] > 0) & sums[:, -1].isfinite()).all()):
        raise ValueError("probabilities: got negative numbers, NaN or only zeros in a row, expected shares")
    return torch.searchsorted(sums, uniform[:, None] * sums[:, -1:], right=True)[:, 0].to(probabilities.device)


def check(scores: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> None:
    if not isinstance(scores, Tensor) or not scores.is_floating_point() or not scores.ndim or not scores.shape[-1]:
        raise TypeError(f"scores: got {came(scores)}, expected floating point (..., V), V from 1 on")
    check_rules(temperature, top_k, top_p, scores.shape[-1])


def check_rules(temperature: float, top_k: int | None, top_p: float | None, V: int | None) -> None:
    if not is_number(temperature) or not 0 <= temperature < math.inf:
        raise ValueError(f"temperature: got {temperature!r}, expected a number from 0 on")
    if top_k is not None:
        whole("top_k", top_k)
        if V is not None and top_k > V:
            raise ValueError(f"top_k: got {top_k}, expected at most {V}, the vocabulary; None keeps all")
    if top_p is not None and (not is_number(top_p) or not 0 < top_p <= 1):
        raise ValueError(f"top_p: got {top_p!r}, expected a number above 0, up to 1, which keeps all")
