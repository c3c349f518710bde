"""Reference solutions of the assignment problems of *One word, one vector*, and answers that must fail.

For teachers: a fork that is published for students leaves this folder out.
"""

import math

import torch


def nce_gradients(v, u, centres, contexts, negatives, noise):
    """Negative sampling's gradients with every score moved by −log(k q): a constant, so nothing else changes."""
    k = negatives.shape[1]
    columns = torch.cat([contexts[:, None], negatives], dim=1)  # [P, 1+K]
    scores = torch.einsum("pd,pkd->pk", v[centres], u[columns])
    error = torch.sigmoid(scores - torch.log(k * noise)[columns])
    error[:, 0] -= 1
    error /= len(centres)
    grad_v = torch.zeros_like(v).index_add_(0, centres, torch.einsum("pk,pkd->pd", error, u[columns]))
    each = error[:, :, None] * v[centres][:, None, :]
    return grad_v, torch.zeros_like(u).index_add_(0, columns.flatten(), each.flatten(0, 1))


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


def _negative_sampling(v, u, centres, contexts, negatives, noise):
    return nce_gradients(v, u, centres, contexts, negatives, torch.full_like(noise, 1 / negatives.shape[1]))


def _correction_with_the_wrong_sign(v, u, centres, contexts, negatives, noise):
    k = negatives.shape[1]
    return nce_gradients(v, u, centres, contexts, negatives, 1 / (k * k * noise))


def _only_q(v, u, centres, contexts, negatives, noise):
    return nce_gradients(v, u, centres, contexts, negatives, noise / negatives.shape[1])


def _sum_over_pairs(*arguments):
    return tuple(g * len(arguments[2]) for g in nce_gradients(*arguments))


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


SOLUTIONS = {"static-embeddings/nce": nce_gradients, "static-embeddings/unmix": unmix}
WRONG = {
    "static-embeddings/nce": [_negative_sampling, _correction_with_the_wrong_sign, _only_q, _sum_over_pairs],
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
