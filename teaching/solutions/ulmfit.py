"""Reference solutions of the assignment problems of *Fine-tuning as a recipe*, and answers that must fail.

This folder is left out of the public tree.
"""

import torch
from lmcourse import schedules


def phase_travel(rates, steps, cut_frac, ratio):
    """Phase k adds Σ r_n of its own triangle to the travel of the layers 0 to k, times their rates."""
    travel = torch.zeros_like(rates)
    for k, count in enumerate(steps):
        if count < 1:
            raise ValueError(f"steps: got {count} in phase {k}, expected 1 or more")
        total = sum(schedules.slanted_triangular(n, count, cut_frac, ratio) for n in range(count))
        travel[: k + 1] += rates[: k + 1] * total
    return travel


def weight_drop_moments(U, h, rate):
    """Entries of the mask are independent, so only equal ones covary: ρ/(1-ρ) Σ_j U_ij² h_tj h_sj."""
    if not 0 <= rate < 1:
        raise ValueError(f"rate: got {rate}, expected 0 to 1, 1 excluded")
    covariance = rate / (1 - rate) * torch.einsum("ij,tj,sj->tsi", U**2, h, h)
    return h @ U.T, covariance


def _mean_rate(rates, steps, cut_frac, ratio):
    """The closed form, also where it does not hold."""
    if min(steps) < 1:
        raise ValueError
    travel = torch.zeros_like(rates)
    for k, count in enumerate(steps):
        travel[: k + 1] += rates[: k + 1] * count * (ratio + 1) / (2 * ratio)
    return travel


def _one_triangle(rates, steps, cut_frac, ratio):
    if min(steps) < 1:
        raise ValueError
    shares = [schedules.slanted_triangular(n, sum(steps), cut_frac, ratio) for n in range(sum(steps))]
    firsts = [sum(steps[:k]) for k in range(len(rates))]
    return torch.stack([rate * sum(shares[first:]) for rate, first in zip(rates, firsts)])


def _from_the_bottom(rates, steps, cut_frac, ratio):
    return phase_travel(rates.flip(0), steps, cut_frac, ratio).flip(0)


def _chain_thaw(rates, steps, cut_frac, ratio):
    """Only the layer that has just thawed learns."""
    if min(steps) < 1:
        raise ValueError
    total = [sum(schedules.slanted_triangular(n, m, cut_frac, ratio) for n in range(m)) for m in steps]
    return torch.stack([rate * (total[k] if k < len(total) else 0) for k, rate in enumerate(rates)])


def _cut_of_the_paper(rates, steps, cut_frac, ratio):
    """The cut of the paper whatever is asked for."""
    return phase_travel(rates, steps, 0.1, ratio)


def _fresh_masks(U, h, rate):
    mean, covariance = weight_drop_moments(U, h, rate)
    return mean, covariance * torch.eye(len(h), dtype=h.dtype)[..., None]


def _rate_only(U, h, rate):
    mean, covariance = weight_drop_moments(U, h, rate)
    return mean, covariance * (1 - rate)


def _not_inverted(U, h, rate):
    mean, covariance = weight_drop_moments(U, h, rate)
    return mean * (1 - rate), covariance * (1 - rate) ** 2


def _second_moment(U, h, rate):
    mean, covariance = weight_drop_moments(U, h, rate)
    return mean, covariance + mean[:, None] * mean[None]


def _dropped_states(U, h, rate):
    """One mask for each component of the state, not for each entry of the matrix: the same variances, no more."""
    if not 0 <= rate < 1:
        raise ValueError
    square = torch.einsum("ij,tj,sj->tsi", U, h, h) * U.sum(1)
    return h @ U.T, rate / (1 - rate) * square


def _absolute(U, h, rate):
    mean, covariance = weight_drop_moments(U, h, rate)
    return mean, covariance.abs()


SOLUTIONS = {"ulmfit/phases": phase_travel, "ulmfit/weight-drop": weight_drop_moments}
WRONG = {
    "ulmfit/phases": [_mean_rate, _one_triangle, _from_the_bottom, _chain_thaw, _cut_of_the_paper],
    "ulmfit/weight-drop": [_fresh_masks, _rate_only, _not_inverted, _second_moment, _dropped_states, _absolute],
}
