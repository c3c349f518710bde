"""Reference solutions of the assignment problems of *One word, one vector*, and answers that must fail.

For teachers: a fork that is published for students leaves this folder out.
"""

import math

import torch


def optimum_without_collisions(p, q, k, redraw=False):
    """log(α / β), with α = p(c|w) and β the number of times a pair of w has c as a negative that is used.

    Dropped: c is drawn k q(c) times, and used unless the pair's context is c: β = k q(c) (1 − p(c)). Drawn again:
    beside the context c' the draw is q(c) / (1 − q(c')), so β = k q(c) Σ_{c' ≠ c} p(c') / (1 − q(c')).
    """
    _refuse(p, q, k)
    if redraw and len(p) == 1:
        raise ValueError("p: one context only, so a negative that differs from it is never drawn")
    weight = p / (1 - q) if redraw else p
    others = torch.stack([torch.cat([weight[:c], weight[c + 1 :]]).sum() for c in range(len(p))])  # exact at p = 1
    return torch.log(p) - torch.log(k * q * others)


def _refuse(p, q, k):
    if p.shape != q.shape or k <= 0 or (q <= 0).any():
        raise ValueError("p, q: expected one length, every q above 0, and k above 0")
    if abs(float(p.sum()) - 1) > 1e-6 or abs(float(q.sum()) - 1) > 1e-6:
        raise ValueError("p, q: expected shares that add up to 1")


def unmix(x, x1, p1):
    """x2 = x + log((1 − exp(x1 + log p1 − x)) / (1 − p1)); defined where x ≥ x1 + log p1.

    A shortfall within the rounding of a log-sum-exp counts as none; x = x1 = −∞ gives −∞.
    """
    if not 0 < p1 < 1:
        raise ValueError(f"p1: got {p1}, expected a share between 0 and 1")
    shortfall = x1 + math.log(p1) - x  # log of the first sense's share of exp x; NaN where both are −∞
    rounding = 16 * torch.finfo(x.dtype).eps * x1.abs().clamp_min(max(1.0, -math.log(p1)))
    rounding = torch.where(x1.isinf(), 0.0, rounding)
    if (shortfall > rounding).any():
        raise ValueError("x: below x1 + log p1, so no second sense can make up the rest")
    rest = torch.log(-torch.expm1(shortfall.clamp(max=0)))
    return torch.where(x1 == -math.inf, x, x + rest) - math.log1p(-p1)


def _collisions_kept(p, q, k, redraw=False):
    _refuse(p, q, k)
    return torch.log(p / (k * q))


def _collisions_of_the_noise(p, q, k, redraw=False):
    _refuse(p, q, k)
    return torch.log(p) - torch.log(k * q * (1 - q))


def _collisions_dropped_in_both_modes(p, q, k, redraw=False):
    return optimum_without_collisions(p, q, k)


def _collisions_redrawn_by_the_context_itself(p, q, k, redraw=False):
    return optimum_without_collisions(p, q, k) + (torch.log(1 - q) if redraw else 0)


def _collisions_redrawn_by_the_mean(p, q, k, redraw=False):
    if redraw and len(p) == 1:
        raise ValueError
    return optimum_without_collisions(p, q, k) + (torch.log(1 - (p * q).sum()) if redraw else 0)


def _collisions_with_the_wrong_sign(p, q, k, redraw=False):
    return -optimum_without_collisions(p, q, k, redraw)


def _collisions_never_refused(p, q, k, redraw=False):
    weight = p / (1 - q) if redraw else p
    return torch.log(p) - torch.log(k * q * (weight.sum() - weight))


def _unmix_average(x, x1, p1):
    return (x - p1 * x1) / (1 - p1)


def _unmix_unstable(x, x1, p1):
    if not 0 < p1 < 1 or (x < x1 + math.log(p1)).any():
        raise ValueError
    return torch.log((torch.exp(x) - p1 * torch.exp(x1)) / (1 - p1))


def _unmix_without_share(x, x1, p1):
    return unmix(x, x1, p1) + math.log1p(-p1)


def _unmix_never_refuses(x, x1, p1):
    share = min(abs(p1) or 0.1, 0.9)
    return torch.nan_to_num(x + torch.log(-torch.expm1(x1 + math.log(share) - x)) - math.log1p(-share))


def _unmix_refuses_only_if_all_are_impossible(x, x1, p1):
    if not 0 < p1 < 1 or (x < x1 + math.log(p1) - 1e-9).all():
        raise ValueError
    possible = torch.maximum(x, x1 + math.log(p1))
    return unmix(possible, x1, p1)


def _unmix_without_the_case_of_two_impossible(x, x1, p1):
    return torch.where(x == -math.inf, math.nan, unmix(x, x1, p1))


def _unmix_refuses_what_rounding_did(x, x1, p1):
    if (x < x1 + math.log(p1)).any():
        raise ValueError
    return unmix(x, x1, p1)


def _unmix_with_slack_for_everything(x, x1, p1):
    return unmix(torch.where(x > x1 + math.log(p1) - 1e-3, torch.maximum(x, x1 + math.log(p1)), x), x1, p1)


SOLUTIONS = {
    "static-embeddings/collisions": optimum_without_collisions,
    "static-embeddings/unmix": unmix,
}
WRONG = {
    "static-embeddings/collisions": [
        _collisions_kept,
        _collisions_of_the_noise,
        _collisions_dropped_in_both_modes,
        _collisions_redrawn_by_the_context_itself,
        _collisions_redrawn_by_the_mean,
        _collisions_with_the_wrong_sign,
        _collisions_never_refused,
    ],
    "static-embeddings/unmix": [
        _unmix_average,
        _unmix_unstable,
        _unmix_without_share,
        _unmix_never_refuses,
        _unmix_refuses_only_if_all_are_impossible,
        _unmix_without_the_case_of_two_impossible,
        _unmix_refuses_what_rounding_did,
        _unmix_with_slack_for_everything,
    ],
}
