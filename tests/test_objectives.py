"""The loss; causal, prefix and masked language modelling: each formula beside one that is plausibly wrong."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lmcourse import objectives

V, MASK, PAD, CLS, SEP = 60, 50, 0, 51, 52
RANDOM = range(100, 200)  # apart from the ids of texts, so that a replaced token can be told from a kept one
quick = settings(max_examples=60, deadline=None, derandomize=True)


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


@st.composite
def texts(draw, least=3):
    """[B, T] ids: [CLS], some words, [SEP], padding."""
    lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    T = max(max(lengths) + 2, least)
    tokens = torch.full((len(lengths), T), PAD)
    for row, n in zip(tokens, lengths, strict=True):
        words = torch.randint(1, MASK, (n,), generator=seeded(draw(st.integers(0, 99))))
        row[: n + 2] = torch.cat([torch.tensor([CLS]), words, torch.tensor([SEP])])
    return tokens


# ------------------------------------------------------------------------------------------ the loss


@pytest.fixture
def scored():
    g = seeded(3)
    logits = torch.randn(4, 7, V, generator=g, dtype=torch.float64)
    weights = torch.rand(4, 7, generator=g, dtype=torch.float64) * (torch.rand(4, 7, generator=g) < 0.5)
    return logits, torch.randint(0, V, (4, 7), generator=g), weights


def by_loops(logits, targets, weights):
    total = norm = 0.0
    for b in range(len(targets)):
        for t in range(targets.shape[1]):
            p = torch.exp(logits[b, t]) / torch.exp(logits[b, t]).sum()
            total += float(weights[b, t] * -torch.log(p[targets[b, t]]))
            norm += float(weights[b, t])
    return total / norm


def test_the_loss_is_the_weighted_mean(scored):
    logits, targets, weights = scored
    right = pytest.approx(by_loops(logits, targets, weights), rel=1e-12)
    assert float(objectives.cross_entropy(logits, targets, weights)) == right
    assert float(objectives.cross_entropy(logits, targets, 7 * weights)) == right, "only shares count"
    each = -torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0]
    wrong = [each.mean() * weights.mean(), (each.mean() * weights).sum() / weights.sum()]  # weights times an average
    wrong += [(each * weights).mean(), (each * weights).sum(), each[weights > 0].mean()]
    wrong += [-(each * weights).sum() / weights.sum(), each.mean()]
    assert all(float(w) != pytest.approx(by_loops(logits, targets, weights), rel=1e-3) for w in wrong)


def test_hand_value():
    logits = torch.log(torch.tensor([[0.25, 0.75], [0.5, 0.5], [0.9, 0.1]]))
    loss = objectives.cross_entropy(logits, torch.tensor([1, 0, 0]), torch.tensor([3.0, 1.0, 0.0]))
    torch.testing.assert_close(loss, -(3 * torch.tensor(0.75).log() + torch.tensor(0.5).log()) / 4)


def loss_and_gradient(loss, logits, targets, weights):
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, targets, weights)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


def counting_all(logits, targets, weights):
    """The mistake that others shipped: the weights multiply a mean that has already been taken over all positions."""
    return (torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()) * weights).sum() / weights.sum()


@given(st.integers(0, 10_000), st.sampled_from([0, V - 1, -100, V, 10**12]))
@quick
def test_ignored_positions_do_not_matter_at_all(seed, other):
    g = seeded(seed)
    logits, weights = torch.randn(3, 5, V, generator=g), (torch.rand(3, 5, generator=g) < 0.5).float()
    weights[0, 0], weights[0, 1] = 1, 0
    targets = torch.randint(0, V, (3, 5), generator=g)
    changed = torch.where(weights > 0, targets, other)
    loss, gradient = loss_and_gradient(objectives.cross_entropy, logits, targets, weights)
    loss_2, gradient_2 = loss_and_gradient(objectives.cross_entropy, logits, changed, weights)
    assert torch.equal(loss, loss_2) and torch.equal(gradient, gradient_2)
    assert not gradient[weights == 0].any() and gradient[weights > 0].any()
    if 0 <= other < V and not torch.equal(changed, targets):
        assert not torch.equal(
            loss_and_gradient(counting_all, logits, targets, weights)[1],
            loss_and_gradient(counting_all, logits, changed, weights)[1],
        )


def test_gradient_is_p_minus_one_hot_times_the_share(scored):
    logits, targets, weights = scored
    _, gradient = loss_and_gradient(objectives.cross_entropy, logits, targets, weights)
    share = (weights / weights.sum())[..., None]
    right = share * (torch.softmax(logits, -1) - torch.nn.functional.one_hot(targets, V))
    torch.testing.assert_close(gradient, right)
    assert not torch.allclose(gradient, -right)


def test_an_impossible_target_counts_only_where_there_is_weight():
    logits = torch.zeros(2, V).index_fill(1, torch.tensor([0, 3]), -torch.inf)
    for target in (0, 3, 5, -100):
        loss = objectives.cross_entropy(logits, torch.tensor([1, target]), torch.tensor([1.0, 0.0]))
        torch.testing.assert_close(loss, torch.tensor(float(V - 2)).log())
    assert objectives.cross_entropy(logits, torch.tensor([1, 3]), torch.tensor([1.0, 1.0])) == torch.inf


def test_the_loss_takes_any_rank_bool_weights_and_half_precision(scored):
    logits, targets, weights = scored
    some = weights > 0
    right = objectives.cross_entropy(logits, targets, some.double())
    torch.testing.assert_close(objectives.cross_entropy(logits, targets, some), right)
    torch.testing.assert_close(objectives.cross_entropy(logits[some], targets[some], some[some]), right)
    half = objectives.cross_entropy(logits.bfloat16(), targets, some)
    assert half.dtype == torch.float32 and float(half) == pytest.approx(float(right), rel=0.01)
    one = objectives.cross_entropy(logits[0, 0], targets[0, 0], torch.tensor(1.0))
    torch.testing.assert_close(one, -torch.log_softmax(logits[0, 0], 0)[targets[0, 0]])


@pytest.mark.parametrize(
    "change, error, message",
    [
        (lambda x, y, w: (x, y, 0 * w), ValueError, "weights: every weight is 0"),
        (lambda x, y, w: (x[:0], y[:0], w[:0]), ValueError, "weights: every weight is 0"),
        (lambda x, y, w: (x, y, -w), ValueError, "weights: some are negative"),
        (lambda x, y, w: (x, y, w / 0), ValueError, "weights: some are .*NaN"),
        (lambda x, y, w: (x, y + V, w), ValueError, "targets: got ids outside 0 to 59"),
        (lambda x, y, w: (x, y - V, w), ValueError, "targets: got ids outside 0 to 59"),
        (lambda x, y, w: (x, y[:, 1:], w), ValueError, r"targets: got shape \[4, 6\], expected \[4, 7\]"),
        (lambda x, y, w: (x, y, w[0]), ValueError, r"weights: got shape \[7\], expected \[4, 7\]"),
        (lambda x, y, w: (x, y.int(), w), TypeError, "targets: got torch.int32"),
        (lambda x, y, w: (x.long(), y, w), TypeError, "logits: got torch.int64"),
        (lambda x, y, w: (x, y, w.tolist()), TypeError, "weights: got list"),
    ],
)
def test_a_bad_loss_is_named(scored, change, error, message):
    with pytest.raises(error, match=message):
        objectives.cross_entropy(*change(*scored))


# ------------------------------------------------------------------------------- from left to right


def test_causal_targets_are_the_next_tokens():
    tokens = torch.tensor([[7, 8, 9, 5], [7, 6, PAD, PAD]])
    inputs, targets, weights = objectives.causal_lm(tokens, PAD)
    assert inputs.tolist() == [[7, 8, 9], [7, 6, PAD]] and targets.tolist() == [[8, 9, 5], [6, PAD, PAD]]
    assert weights.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert objectives.causal_lm(tokens)[2].tolist() == [[1, 1, 1], [1, 1, 1]]


@given(texts())
@quick
def test_causal_properties(tokens):
    before = tokens.clone()
    inputs, targets, weights = objectives.causal_lm(tokens, PAD)
    assert torch.equal(torch.cat([inputs[:, :1], targets], 1), tokens)
    assert not torch.equal(targets, inputs), "targets not shifted"
    assert torch.equal(weights.bool(), tokens[:, 1:] != PAD) and weights.dtype == torch.float32
    targets.fill_(-100)
    assert torch.equal(inputs, before[:, :-1])
    inputs.fill_(-100)
    assert torch.equal(tokens, before), "nothing shares memory"


def test_prefix_by_words():
    words = "Carolina woke up in the morning and got ready for work".split()
    ids = {word: i + 1 for i, word in enumerate(words)}
    tokens = torch.tensor([[ids[w] for w in words]])
    inputs, targets, weights = objectives.prefix_lm(tokens, 6, PAD)
    said = lambda row: " ".join(words[i - 1] for i in row.tolist())  # noqa: E731
    assert said(inputs[0]) == "Carolina woke up in the morning" and said(targets[0]) == "and got ready for work"
    assert weights.tolist() == [[1] * 5]
    assert said(objectives.prefix_lm(tokens, 5, PAD)[0][0]) == "Carolina woke up in the"


@given(texts(), st.integers(0, 1000))
@quick
def test_prefix_and_suffix_make_up_the_text(tokens, seed):
    before, length = tokens.clone(), (tokens != PAD).sum(1)
    prefix = objectives.draw_prefix(tokens, PAD, seeded(seed))
    inputs, targets, weights = objectives.prefix_lm(tokens, prefix, PAD)
    assert torch.equal(tokens, before)
    assert inputs.shape[1] == prefix.max() and targets.shape[1] == (length - prefix).max()
    for row, n, P, x, y, w in zip(tokens, length, prefix, inputs, targets, weights, strict=True):
        assert 1 <= P < n
        assert torch.equal(torch.cat([x[:P], y[: n - P]]), row[:n])
        assert not (x[P:] != PAD).any() and not (y[n - P :] != PAD).any()
        assert w.tolist() == [1] * int(n - P) + [0] * int(len(y) - n + P)
    assert torch.equal(prefix, objectives.draw_prefix(tokens, PAD, seeded(seed)))


def test_prefixes_are_uniform_and_leave_a_suffix():
    tokens = torch.ones(9000, 10, dtype=torch.int64)
    counts = torch.bincount(objectives.draw_prefix(tokens, PAD, seeded()), minlength=11)
    assert counts[[0, 10]].tolist() == [0, 0]
    assert chi_square(counts[1:10], torch.full((9,), 1 / 9)) < 45  # 8 degrees of freedom: exceeded once in 3 million
    assert chi_square(counts[1:10], torch.arange(1, 10) / 45) > 45


@pytest.mark.parametrize(
    "prefix, error, message",
    [
        (0, ValueError, "prefix: got 0 for row 0 of 4 tokens, expected 1 to 3"),
        (4, ValueError, "prefix: got 4 for row 0 of 4 tokens"),
        (2, ValueError, "prefix: got 2 for row 1 of 2 tokens, expected 1 to 1"),
        (torch.tensor([1, 1, 1]), ValueError, r"prefix: got shape \[3\], expected \[2\]"),
        (1.5, TypeError, "prefix: got torch.float32"),
    ],
)
def test_a_bad_prefix_is_named(prefix, error, message):
    with pytest.raises(error, match=message):
        objectives.prefix_lm(torch.tensor([[7, 8, 9, 5], [7, 6, PAD, PAD]]), prefix, PAD)


def test_a_text_without_two_tokens_has_no_prefix():
    tokens = torch.tensor([[7, 8], [7, PAD]])
    with pytest.raises(ValueError, match="prefix: got 1 for row 1 of 1 tokens"):
        objectives.draw_prefix(tokens, PAD, seeded())


# ------------------------------------------------------------------------------------- masked tokens


def masked(tokens, seed=1, **changes):
    candidates = objectives.ordinary(tokens, [PAD, CLS, SEP])
    options = dict(mask_id=MASK, random_ids=RANDOM, candidates=candidates, generator=seeded(seed))
    return objectives.masked_lm(tokens, **(options | changes))


@given(texts(), st.integers(0, 1000), st.sampled_from([0.01, 0.15, 0.5, 0.99]))
@quick
def test_masked_properties(tokens, seed, rate):
    before = tokens.clone()
    inputs, targets, weights = masked(tokens, seed, rate=rate)
    chosen = weights == 1
    assert inputs.shape == targets.shape == weights.shape == tokens.shape
    assert inputs.dtype == targets.dtype == torch.int64 and weights.dtype == torch.float32
    assert torch.equal(targets, tokens) and torch.equal(chosen, weights != 0)
    assert torch.equal(inputs[~chosen], tokens[~chosen]), "what is not chosen stays"
    assert not torch.isin(tokens[chosen], torch.tensor([PAD, CLS, SEP])).any(), "special tokens are never chosen"
    n = objectives.ordinary(tokens, [PAD, CLS, SEP]).sum(1).tolist()
    assert chosen.sum(1).tolist() == [max(1, round(rate * k)) for k in n]
    new = inputs[chosen & (inputs != tokens)]
    assert ((new == MASK) | torch.isin(new, torch.tensor([*RANDOM]))).all()
    again = masked(tokens, seed, rate=rate)
    assert all(torch.equal(a, b) for a, b in zip(again, (inputs, targets, weights), strict=True))
    inputs.fill_(-1), targets.fill_(-1)
    assert torch.equal(tokens, before), "nothing shares memory with the tokens"


def test_the_size_of_the_chosen_set():
    n = torch.tensor([1, 3, 4, 10, 30, 100, 510])
    assert objectives.budget(n, 0.15).tolist() == [1, 1, 1, 2, 4, 15, 76]  # halves go to the even number
    assert objectives.budget(n, 0.15).tolist() != torch.ceil(n * 0.15).tolist()
    assert objectives.budget(n, 0.15).tolist() != (n * 0.15).long().tolist()


def chi_square(counts, shares):
    expected = shares * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def fates(inputs, targets, weights):
    """How many of the chosen tokens became [MASK], another id, or stayed."""
    x, y = inputs[weights > 0], targets[weights > 0]
    return torch.tensor([(x == MASK).sum(), (x >= RANDOM.start).sum(), (x == y).sum()])


CRITICAL = 27.6  # chi-square with two degrees of freedom: exceeded once in a million


@pytest.mark.parametrize("split", [(0.8, 0.1, 0.1), (0.6, 0.3, 0.1), (0.5, 0.2, 0.3)])
def test_eighty_ten_ten(split):
    tokens = torch.randint(1, MASK, (64, 512), generator=seeded())
    counts = fates(*masked(tokens, split=split))
    assert counts.sum() == 64 * 77
    assert chi_square(counts, torch.tensor(split)) < CRITICAL
    wrong = [(0.1, 0.8, 0.1), (1 / 3, 1 / 3, 1 / 3), (0.9, 0.05, 0.05), (0.8, 0.02, 0.18), (0.8, 0.18, 0.02)]
    assert all(chi_square(counts, torch.tensor(s)) > CRITICAL for s in wrong if s != split)


def test_code_that_never_masks_is_found():
    tokens = torch.randint(1, MASK, (64, 512), generator=seeded())
    never = fates(tokens, tokens, masked(tokens)[2])
    assert chi_square(never, torch.tensor(objectives.SPLIT)) > CRITICAL
    all_masked = fates(*masked(tokens, split=(1, 0, 0)))
    assert all_masked.tolist() == [64 * 77, 0, 0] and chi_square(all_masked, torch.tensor(objectives.SPLIT)) > CRITICAL


def test_every_candidate_is_as_likely_as_every_other():
    tokens = torch.full((40_000, 8), 7)
    tokens[:, 0], tokens[:, -1] = CLS, PAD
    counts = masked(tokens, rate=0.3)[2].sum(0)
    assert counts[[0, -1]].tolist() == [0, 0] and counts.sum() == 40_000 * 2
    assert chi_square(counts[1:-1], torch.full((6,), 1 / 6)) < 40  # 5 degrees of freedom
    first = torch.zeros(8).index_fill(0, torch.tensor([1, 2]), 40_000)  # code that takes the first two candidates
    assert chi_square(first[1:-1], torch.full((6,), 1 / 6)) > 40


def test_random_ids_reach_both_ends_of_their_range():
    inputs, _, weights = masked(torch.full((50, 100), 7), random_ids=range(100, 104), split=(0, 1, 0))
    assert sorted(set(inputs[weights > 0].tolist())) == [100, 101, 102, 103]


def test_dynamic_masks_differ_and_static_ones_come_back():
    tokens = torch.randint(1, MASK, (8, 60), generator=seeded())
    g, options = seeded(), dict(mask_id=MASK, random_ids=RANDOM)
    dynamic = [objectives.masked_lm(tokens, generator=g, **options)[2] for _ in range(5)]
    assert all(not torch.equal(a, b) for a, b in zip(dynamic, dynamic[1:], strict=False))
    static = objectives.static_masked_lm(tokens, copies=3, generator=seeded(), **options)
    assert len(static) == 3 and all(torch.equal(a[2], b) for a, b in zip(static, dynamic, strict=False))
    assert len(objectives.static_masked_lm(tokens, generator=seeded(), **options)) == 10
    with pytest.raises(ValueError, match="copies: got 0"):
        objectives.static_masked_lm(tokens, copies=0, generator=seeded(), **options)


TOKENS = torch.tensor([[CLS, 7, 8, SEP], [CLS, 9, SEP, PAD]])


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (dict(candidates=torch.tensor([[0, 1, 1, 0], [0] * 4]) == 1), ValueError, "candidates: all tokens of row 1"),
        (dict(candidates=torch.ones(2, 3) == 1), ValueError, r"candidates: got shape \[2, 3\], expected \[2, 4\]"),
        (dict(candidates=torch.ones(2, 4)), TypeError, "candidates: got torch.float32"),
        (dict(mask_id=-1), ValueError, "mask_id: got -1"),
        (dict(mask_id=100), ValueError, "mask_id: got 100, expected an id from 0 on outside random_ids"),
        (dict(mask_id=None), ValueError, "mask_id: got None"),
        (dict(random_ids=(1, 9)), TypeError, "random_ids: got tuple, expected a range"),
        (dict(random_ids=range(9, 9)), ValueError, "random_ids: got range"),
        (dict(random_ids=range(-2, 9)), ValueError, "random_ids: got range"),
        (dict(rate=0), ValueError, "rate: got 0, expected a share between 0 and 1"),
        (dict(rate=1), ValueError, "rate: got 1"),
        (dict(rate=15), ValueError, "rate: got 15"),
        (dict(rate=float("nan")), ValueError, "rate: got nan"),
        (dict(split=(0.8, 0.1)), ValueError, "split: got"),
        (dict(split=(0.8, 0.2, 0.1)), ValueError, "split: got .*add up to 1"),
        (dict(split=(1.1, -0.1, 0.0)), ValueError, "split: got"),
        (dict(generator=None), TypeError, "generator: got None"),
    ],
)
def test_bad_masking_is_named(changes, error, message):
    with pytest.raises(error, match=message):
        masked(TOKENS, **changes)


@pytest.mark.parametrize(
    "tokens, error, message",
    [
        (TOKENS.int(), TypeError, r"tokens: got torch.int32 \[2, 4\], expected int64"),
        (TOKENS.tolist(), TypeError, "tokens: got list"),
        (TOKENS[0], ValueError, r"tokens: got shape \[4\], expected \[B, T\]"),
        (TOKENS[:0], ValueError, r"tokens: got shape \[0, 4\]"),
        (TOKENS[:, :0], ValueError, r"tokens: got shape \[2, 0\]"),
        (TOKENS - 1, ValueError, "tokens: got id -1"),
    ],
)
def test_bad_tokens_are_named(tokens, error, message):
    calls = [
        lambda: objectives.masked_lm(tokens, mask_id=MASK, random_ids=RANDOM, generator=seeded()),
        lambda: objectives.causal_lm(tokens, PAD),
        lambda: objectives.prefix_lm(tokens, 1, PAD),
        lambda: objectives.draw_prefix(tokens, PAD, seeded()),
    ]
    for call in calls:
        with pytest.raises(error, match=message):
            call()


def test_one_token_has_no_next():
    with pytest.raises(ValueError, match=r"tokens: got shape \[2, 1\], expected \[B, T\] with T of 2 or more"):
        objectives.causal_lm(TOKENS[:, :1])


def test_padding_on_the_left_of_a_prefix_is_found():
    with pytest.raises(ValueError, match="tokens: got a token after padding"):
        objectives.prefix_lm(torch.tensor([[0, 0, 7, 8, 9]]), 2, 0)
