"""Reference solutions of the assignment problems of *One word, one vector*, and answers that must fail.

This folder is left out of the public tree.
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
    """x2 = x + log((1 − exp(x1 + log p1 − x)) / (1 − p1)); defined where x ≥ x1 + log p1."""
    if not 0 < p1 < 1:
        raise ValueError(f"p1: got {p1}, expected a share between 0 and 1")
    explained = x1 + math.log(p1) - x  # log of the share of exp x that the first sense explains
    if (explained > 0).any():
        raise ValueError("x: below x1 + log p1, so no second sense can make up the rest")
    return x + torch.log(-torch.expm1(explained)) - math.log1p(-p1)


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
    return torch.nan_to_num(x + torch.log(-torch.expm1(x1 + math.log(abs(p1) or 0.1) - x)) - math.log1p(-min(abs(p1), 0.9)))


SOLUTIONS = {"static-embeddings/nce": nce_gradients, "static-embeddings/unmix": unmix}
WRONG = {
    "static-embeddings/nce": [_negative_sampling, _correction_with_the_wrong_sign, _only_q, _sum_over_pairs],
    "static-embeddings/unmix": [_unmix_average, _unmix_unstable, _unmix_without_share, _unmix_never_refuses],
}
