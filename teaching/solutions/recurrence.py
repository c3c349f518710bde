"""Reference solutions of the assignment problems of *Language models and the vanishing gradient*, and wrong answers.

This folder is left out of the public tree.
"""

import torch


def linear_scan(a, b, h0):
    """Hillis & Steele 1986: after round r, place t holds the composition of the steps t − 2^r + 1 … t."""
    factors, addends, reach = a, b, 1
    while reach < len(a):
        # the later step is applied to the earlier one: (a, b) after (a', b') is (a a', a b' + b)
        addends = torch.cat([addends[:reach], factors[reach:] * addends[:-reach] + addends[reach:]])
        factors = torch.cat([factors[:reach], factors[reach:] * factors[:-reach]])
        reach *= 2
    return factors * h0 + addends


def scaled_bound(jacobians, scale):
    """log κ(Λ) + Σ log ‖Λ A_t Λ⁻¹‖, Λ = diag(scale): A_T ⋯ A_1 = Λ⁻¹ (Λ A_T Λ⁻¹) ⋯ (Λ A_1 Λ⁻¹) Λ."""
    if not bool((scale > 0).all()):
        raise ValueError(f"scale: got {scale}, expected numbers above 0")
    scaled = scale[:, None] * jacobians / scale
    return torch.linalg.matrix_norm(scaled, 2).log().sum() + (scale.max() / scale.min()).log()


def _loop(a, b, h0):
    found = []
    for factor, addend in zip(a, b):
        h0 = factor * h0 + addend
        found.append(h0)
    return torch.stack(found)


def _loop_in_lists(a, b, h0):
    found, h = [], h0.tolist()
    for factors, addends in zip(a.tolist(), b.tolist()):
        h = [factor * x + addend for factor, x, addend in zip(factors, h, addends)]
        found.append(h)
    return torch.tensor(found, dtype=a.dtype)


def _loop_in_numpy(a, b, h0):
    found, h = [], h0.numpy()
    for factor, addend in zip(a.numpy(), b.numpy()):
        h = factor * h + addend
        found.append(torch.from_numpy(h))
    return torch.cat(found).view(a.shape)


def _cumulative_products(a, b, h0):
    products = a.cumprod(0)
    return products * (h0 + (b / products).cumsum(0))


def _composed_the_other_way(a, b, h0):
    factors, addends, reach = a, b, 1
    while reach < len(a):
        addends = torch.cat([addends[:reach], factors[:-reach] * addends[reach:] + addends[:-reach]])
        factors = torch.cat([factors[:reach], factors[reach:] * factors[:-reach]])
        reach *= 2
    return factors * h0 + addends


def _without_the_first_state(a, b, h0):
    return linear_scan(a, b, torch.zeros_like(h0))


def _one_round_short(a, b, h0):
    factors, addends, reach = a, b, 1
    while 2 * reach < len(a):
        addends = torch.cat([addends[:reach], factors[reach:] * addends[:-reach] + addends[reach:]])
        factors = torch.cat([factors[:reach], factors[reach:] * factors[:-reach]])
        reach *= 2
    return factors * h0 + addends


def _without_condition_number(jacobians, scale):
    return scaled_bound(jacobians, scale) - (scale.max() / scale.min()).log()


def _inverse_scale(jacobians, scale):
    return scaled_bound(jacobians, 1 / scale)


def _frobenius(jacobians, scale):
    scaled = scale[:, None] * jacobians / scale
    return scaled.flatten(1).norm(dim=1).log().sum() + (scale.max() / scale.min()).log()


def _underflows(jacobians, scale):
    if not bool((scale > 0).all()):
        raise ValueError
    scaled = scale[:, None] * jacobians / scale
    return (torch.linalg.matrix_norm(scaled, 2).prod() * scale.max() / scale.min()).log()


def _norm_of_the_product(jacobians, scale):
    if not bool((scale > 0).all()):
        raise ValueError
    product = torch.linalg.multi_dot(list(jacobians.flip(0))) if len(jacobians) > 1 else jacobians[0]
    return torch.linalg.matrix_norm(product, 2).log()


def _largest_to_the_power(jacobians, scale):
    if not bool((scale > 0).all()):
        raise ValueError
    scaled = scale[:, None] * jacobians / scale
    return torch.linalg.matrix_norm(scaled, 2).max().log() * len(scaled) + (scale.max() / scale.min()).log()


def _sum_of_columns(jacobians, scale):
    if not bool((scale > 0).all()):
        raise ValueError
    scaled = scale[:, None] * jacobians / scale
    return torch.linalg.matrix_norm(scaled, 1).log().sum() + (scale.max() / scale.min()).log()


def _last_by_first(jacobians, scale):
    return scaled_bound(jacobians, scale) - (scale.max() / scale.min()).log() + (scale[-1] / scale[0]).log()


SOLUTIONS = {"recurrence/linear-scan": linear_scan, "recurrence/scaled-bound": scaled_bound}
WRONG = {
    "recurrence/linear-scan": [
        _loop, _loop_in_lists, _loop_in_numpy, _cumulative_products, _composed_the_other_way,
        _without_the_first_state, _one_round_short
    ],
    "recurrence/scaled-bound": [
        _without_condition_number, _inverse_scale, _frobenius, _underflows, _norm_of_the_product,
        _largest_to_the_power, _sum_of_columns, _last_by_first
    ],
}  # fmt: skip
