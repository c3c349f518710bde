"""The equations of the chapter *One word, one vector*, each against an oracle and with a wrong variant."""

import math
from collections import Counter
from fractions import Fraction

import pytest
import torch
from equation import equation  # noqa: F401  (a fixture)
from lmcourse import embeddings as emb
from lmcourse import glove
from torch.nn.functional import logsigmoid

V, D, WINDOW = 6, 3, 2
BOUNDARY = V


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def stream(generator):
    """Two "sentences" of 300 and 100 words over 6 words, unevenly frequent."""
    words = torch.multinomial(torch.arange(1.0, V + 1), 400, replacement=True, generator=generator)
    end = torch.tensor([BOUNDARY])
    return torch.cat([words[:300], end, words[300:], end])


@pytest.fixture
def pairs(stream):
    return emb.skipgram_pairs(stream, BOUNDARY, WINDOW)


@pytest.fixture
def counts(pairs):
    return emb.pair_counts(pairs, V, V)


@pytest.fixture
def tables(generator):
    """v, u [V, D] float64 that autograd follows."""
    draw = lambda: (torch.rand(V, D, generator=generator, dtype=torch.float64) - 0.5).requires_grad_()  # noqa: E731
    return draw(), draw()


def scores_of(tables):
    v, u = (t.detach() for t in tables)
    return v @ u.T  # [V centres, V contexts]


def minimise(loss, x, steps=300):
    """Newton's method on a loss that is a sum of one-variable convex functions of the entries of x."""
    x = x.clone().requires_grad_()
    for _ in range(steps):
        (g,) = torch.autograd.grad(loss(x).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
        x = (x - (g / h).clamp(-1, 1)).detach().requires_grad_()
    return x.detach()


# ---------------------------------------------------------------------------------------- counts


@pytest.mark.equation("eq-context-distribution")
def test_context_distribution_by_exact_fractions(equation, stream, counts):
    ids, tally = stream.tolist(), Counter()
    for t, w in enumerate(ids):
        for j in range(max(0, t - WINDOW), min(len(ids), t + WINDOW + 1)):
            if j != t and BOUNDARY not in ids[min(t, j) : max(t, j) + 1]:
                tally[w, ids[j]] += 1
    row = [sum(tally[w, c] for c in range(V)) for w in range(V)]
    oracle = [[float(Fraction(tally[w, c], row[w])) for c in range(V)] for w in range(V)]
    n = counts.double()
    equation.holds(n / n.sum(1, keepdim=True), oracle)
    equation.rejects(n / n.sum(0, keepdim=True), oracle)  # divided by the context's count
    marginal = [float(Fraction(sum(tally[w, c] for w in range(V)), sum(row))) for c in range(V)]
    equation.holds(n.sum(0) / n.sum(), marginal)
    equation.rejects((n / n.sum(1, keepdim=True)).mean(0), marginal)  # each centre weighing the same


@pytest.mark.equation("eq-context-distribution")
def test_context_distribution_of_centres_that_are_not_contexts(equation, stream):
    """With words merged on the input side counts are not symmetric, and p(c) is not p(w)."""
    centres = torch.where(stream == 1, 0, stream)
    pairs, tally = emb.skipgram_pairs(stream, BOUNDARY, WINDOW, centres), Counter()
    for t, word in enumerate(stream.tolist()):
        near = [j for j in range(max(0, t - WINDOW), t + WINDOW + 1) if j != t and j < len(stream)]
        for j in near:
            if BOUNDARY not in stream[min(t, j) : max(t, j) + 1].tolist():
                tally[word] += 1  # of the word as a context, seen from any centre
    n = emb.pair_counts(pairs, V, V).double()
    oracle = [float(Fraction(tally[c], sum(tally.values()))) for c in range(V)]
    equation.holds(n.sum(0) / n.sum(), oracle)
    equation.rejects(n.sum(1) / n.sum(), oracle)  # summed over contexts: the share of the centre


@pytest.mark.equation("eq-windows-are-counts")
def test_windows_add_up_to_counts(equation, generator, pairs, counts):
    loss = torch.rand(V, V, generator=generator, dtype=torch.float64)  # any loss of a pair
    over_windows = sum(loss[w, c] for w, c in pairs.tolist())
    equation.holds((counts * loss).sum(), over_windows)
    equation.rejects(((counts > 0) * loss).sum(), over_windows)  # each pair once, whatever its count


# ------------------------------------------------------------------------------------- skip-gram


@pytest.mark.equation("eq-softmax")
def test_softmax(equation, tables):
    v, u = (t.detach() for t in tables)
    w, c = 2, 4
    oracle = math.exp(u[c] @ v[w]) / sum(math.exp(u[i] @ v[w]) for i in range(V))
    pair = torch.tensor([w]), torch.tensor([c])
    equation.holds(torch.exp(-emb.softmax_loss(v, u, *pair)), oracle)
    equation.rejects(torch.exp(-emb.softmax_loss(u, v, *pair)), oracle)  # tables exchanged


@pytest.mark.equation("eq-softmax-loss")
def test_softmax_loss_is_entropy_plus_divergence(equation, tables, pairs, counts):
    v, u = (t.detach() for t in tables)
    n = counts.double()
    p, model = n / n.sum(1, keepdim=True), torch.softmax(scores_of(tables), 1)
    entropy = torch.special.entr(p).sum(1)
    divergence = torch.xlogy(p, p / model).sum(1)
    loss = emb.softmax_loss(v, u, *pairs.T) * len(pairs)
    equation.holds(-(n * torch.log(model)).sum(), loss)  # the first line
    equation.rejects(-(p * torch.log(model)).sum(), loss)  # p(c|w) in place of the counts
    equation.rejects(-(n * torch.log2(model)).sum(), loss)  # bits in place of nats
    equation.holds((n.sum(1) * (entropy + divergence)).sum(), loss)
    equation.rejects((n.sum(1) * divergence).sum(), loss)  # without the text's own entropy
    reverse = torch.xlogy(model, model / p.clamp_min(1e-12)).sum(1)
    equation.rejects((n.sum(1) * (entropy + reverse)).sum(), loss)  # the other divergence


def test_softmax_optimum_is_the_log_conditional_up_to_a_constant_of_the_centre(counts):
    p = counts.double() / counts.sum(1, keepdim=True)
    scores = torch.log(p) + torch.arange(V)[:, None]
    assert torch.allclose(torch.softmax(scores, 1), p, atol=1e-14)


@pytest.mark.equation("eq-softmax-gradient-v")
def test_softmax_gradient_of_the_input_table(equation, tables, pairs, counts):
    loss = emb.softmax_loss(*tables, *pairs.T) * len(pairs)
    oracle = torch.autograd.grad(loss, tables[0])[0]
    n = counts.double()
    expected, observed = torch.softmax(scores_of(tables), 1), n / n.sum(1, keepdim=True)
    u = tables[1].detach()
    equation.holds(n.sum(1, keepdim=True) * (expected - observed) @ u, oracle)
    equation.holds(emb.softmax_gradients(tables[0].detach(), u, *pairs.T)[0] * len(pairs), oracle)
    equation.rejects(n.sum(1, keepdim=True) * (observed - expected) @ u, oracle)  # sign


@pytest.mark.equation("eq-softmax-gradient-u")
def test_softmax_gradient_of_the_output_table(equation, tables, pairs, counts):
    loss = emb.softmax_loss(*tables, *pairs.T) * len(pairs)
    oracle = torch.autograd.grad(loss, tables[1])[0]
    n = counts.double()
    error = n.sum(1, keepdim=True) * (torch.softmax(scores_of(tables), 1) - n / n.sum(1, keepdim=True))
    v = tables[0].detach()
    equation.holds(error.T @ v, oracle)
    equation.holds(emb.softmax_gradients(v, tables[1].detach(), *pairs.T)[1] * len(pairs), oracle)
    equation.rejects(error @ v, oracle)  # index: summed over contexts


@pytest.mark.equation("eq-worked-example")
def test_worked_example(equation):
    v = torch.tensor([[1.0, 0.0], [0.3, 0.2], [-0.4, 0.1]], dtype=torch.float64)  # bank, river, money
    u = torch.tensor([[0.0, 1.0], [math.log(2), 0.0], [0.0, -1.0]], dtype=torch.float64)
    bank_money = torch.tensor([0]), torch.tensor([2])
    grad_v, grad_u = emb.softmax_gradients(v, u, *bank_money)
    equation.holds(grad_v[0], [math.log(2) / 2, 1.0])
    equation.rejects(-grad_v[0], [math.log(2) / 2, 1.0])
    equation.holds(grad_u, [[0.25, 0], [0.5, 0], [-0.75, 0]])
    assert emb.softmax_loss(v, u, *bank_money).item() == pytest.approx(math.log(4))
    v, u = v - 0.5 * grad_v, u - 0.5 * grad_u
    assert [round(x, 3) for x in v[0].tolist()] == [0.827, -0.5]
    assert [round(x, 3) for x in u.flatten().tolist()] == [-0.125, 1, 0.443, 0, 0.375, -1]
    assert [round(x, 3) for x in (u @ v[0]).tolist()] == [-0.603, 0.366, 0.81]
    assert round(emb.softmax_loss(v, u, *bank_money).item(), 3) == 0.634
    # The exercise: the pair (bank, river) arrives next.
    bank_river = torch.tensor([0]), torch.tensor([1])
    assert round(emb.softmax_loss(v, u, *bank_river).item(), 2) == 1.08
    assert [round(x, 3) for x in emb.softmax_gradients(v, u, *bank_river)[0][0].tolist()] == [-0.109, -0.401]


def test_two_tables_of_zeros_do_not_move():
    zero, ids = torch.zeros(V, D), torch.arange(V)
    assert all(g.abs().max() == 0 for g in emb.softmax_gradients(zero, zero, ids, ids.flip(0)))


@pytest.mark.equation("eq-one-table")
def test_one_table_is_positive_semidefinite(equation, tables):
    v, u = (t.detach() for t in tables)
    one, two = v @ v.T, v @ u.T

    def violation(x):
        """How far any score breaks the two inequalities; 0 where both hold everywhere."""
        diagonal = x.diagonal()
        pairwise = 2 * x - diagonal[:, None] - diagonal[None, :]
        return torch.stack([(-diagonal).max(), pairwise.fill_diagonal_(0).max()]).clamp_min(0).max()

    equation.holds(violation(one), 0.0)
    equation.rejects(violation(two), 0.0)  # two tables are free of the constraint
    assert torch.linalg.eigvalsh(one).min() > -1e-12
    # The slack of each inequality is a squared length, here taken from the vectors themselves.
    diagonal = one.diagonal()
    apart = torch.cdist(v, v) ** 2
    equation.holds(diagonal, torch.cdist(v, torch.zeros(1, D).double())[:, 0] ** 2)
    equation.holds(diagonal[:, None] + diagonal[None, :] - 2 * one, apart)
    equation.rejects(diagonal[:, None] + diagonal[None, :] - one, apart)  # the 2 is missing
    equation.rejects(diagonal[:, None] + diagonal[None, :] + 2 * one, apart)  # its sign


# ----------------------------------------------------------------------------- negative sampling


@pytest.fixture
def draws(generator, pairs):
    """[P, K] negatives."""
    return torch.randint(0, V, (len(pairs), 4), generator=generator)


@pytest.mark.equation("eq-negative-sampling")
def test_negative_sampling_loss(equation, tables, draws):
    v, u = (t.detach() for t in tables)
    w, c, negatives = 1, 3, draws[:1]
    log_sigma = lambda x: -math.log1p(math.exp(-x))  # noqa: E731
    oracle = -log_sigma(u[c] @ v[w]) - sum(log_sigma(-(u[n] @ v[w])) for n in negatives[0].tolist())
    equation.holds(emb.negative_sampling_loss(v, u, torch.tensor([w]), torch.tensor([c]), negatives), oracle)
    summed_first = -logsigmoid(u[c] @ v[w]) - logsigmoid(-(u[negatives[0]] @ v[w]).sum())
    equation.rejects(summed_first, oracle)  # the mistake that peers shipped
    missing_sign = -logsigmoid(u[c] @ v[w]) - logsigmoid(u[negatives[0]] @ v[w]).sum()
    equation.rejects(missing_sign, oracle)


@pytest.mark.equation("eq-negative-sampling-gradient-v", "eq-negative-sampling-gradient-u")
def test_negative_sampling_gradients(equation, tables, draws):
    one = torch.tensor([1]), torch.tensor([3]), torch.tensor([[0, 5, 5, 2]])
    oracle_v, oracle_u = torch.autograd.grad(emb.negative_sampling_loss(*tables, *one), tables)
    v, u = (t.detach() for t in tables)
    (w, c), negatives = (1, 3), one[2][0]
    error = torch.sigmoid(u[c] @ v[w]) - 1
    by_hand_v, by_hand_u = torch.zeros_like(v), torch.zeros_like(u)
    by_hand_v[w] = error * u[c] + sum(torch.sigmoid(u[n] @ v[w]) * u[n] for n in negatives)
    by_hand_u[c] += error * v[w]
    for n in negatives:  # a word drawn twice is pushed twice
        by_hand_u[n] += torch.sigmoid(u[n] @ v[w]) * v[w]
    of_v, of_u = equation("eq-negative-sampling-gradient-v"), equation("eq-negative-sampling-gradient-u")
    for ours_v, ours_u in [(by_hand_v, by_hand_u), emb.negative_sampling_gradients(v, u, *one)]:
        of_v.holds(ours_v, oracle_v)
        of_u.holds(ours_u, oracle_u)
    wrong = by_hand_v.clone()
    wrong[w] += u[c]  # σ instead of σ − 1
    of_v.rejects(wrong, oracle_v)
    once = by_hand_u.clone()
    once[5] /= 2  # a repeated negative counted once
    of_u.rejects(once, oracle_u)


@pytest.mark.equation("eq-negative-sampling-expected")
def test_expected_loss_is_the_mean_over_all_draws(equation, tables, pairs, counts):
    """For k = 2 the V² possible draws of each pair are few enough to average exactly."""
    v, u = (t.detach() for t in tables)
    q = emb.noise_distribution(counts.sum(0), 0.75)
    oracle = 0.0
    for a in range(V):
        for b in range(V):
            negatives = torch.tensor([a, b]).expand(len(pairs), 2)
            oracle += q[a] * q[b] * emb.negative_sampling_loss(v, u, *pairs.T, negatives)
    equation.holds(emb.expected_negative_sampling_loss(scores_of(tables), counts, q, 2), oracle)
    equation.rejects(emb.expected_negative_sampling_loss(scores_of(tables), counts, q, 1), oracle)
    equation.rejects(emb.expected_negative_sampling_loss(scores_of(tables), counts, q.flip(0), 2), oracle)


@pytest.mark.equation("eq-negative-sampling-optimum")
def test_negative_sampling_optimum(equation, counts):
    q, k = emb.noise_distribution(counts.sum(0), 0.75), 5
    assert (counts > 0).all()
    oracle = minimise(lambda x: emb.expected_negative_sampling_loss(x, counts, q, k), torch.zeros(V, V).double())
    p = counts.double() / counts.sum(1, keepdim=True)
    equation.holds(torch.log(p / q) - math.log(k), oracle)
    equation.holds(emb.negative_sampling_optimum(counts, q, k), oracle)
    equation.rejects(torch.log(p / q) + math.log(k), oracle)
    equation.rejects(torch.log(p), oracle)  # the softmax's optimum


def test_the_optimum_of_an_unseen_pair_is_minus_infinity(counts):
    counts = counts.clone()
    counts[0, 1] = 0
    q = emb.noise_distribution(counts.sum(0), 0.75)
    assert emb.negative_sampling_optimum(counts, q, 5)[0, 1] == -math.inf


@pytest.mark.equation("eq-unigram-noise")
def test_unigram_noise_gives_pmi(equation, counts):
    n = counts.double()
    joint, w, c = n / n.sum(), n.sum(1) / n.sum(), n.sum(0) / n.sum()
    pmi = torch.log(joint / (w[:, None] * c[None, :]))
    optimum = emb.negative_sampling_optimum(counts, emb.noise_distribution(counts.sum(0), 1.0), 5)
    equation.holds(pmi - math.log(5), optimum)
    equation.rejects(pmi, optimum)
    three_quarters = emb.negative_sampling_optimum(counts, emb.noise_distribution(counts.sum(0), 0.75), 5)
    equation.rejects(pmi - math.log(5), three_quarters)  # PMI − log k is not what word2vec's noise gives


@pytest.mark.equation("eq-three-quarters-noise")
def test_three_quarters_noise(equation, counts):
    n = counts.double()
    joint, w, c = n / n.sum(), n.sum(1) / n.sum(), n.sum(0) / n.sum()
    pmi, log_z = torch.log(joint / (w[:, None] * c[None, :])), torch.log((c**0.75).sum())
    optimum = emb.negative_sampling_optimum(counts, emb.noise_distribution(counts.sum(0), 0.75), 5)
    equation.holds(pmi + torch.log(c) / 4 + log_z - math.log(5), optimum)
    equation.rejects(pmi - torch.log(c) / 4 + log_z - math.log(5), optimum)
    equation.rejects(pmi + torch.log(c) / 4 - math.log(5), optimum)  # normaliser forgotten


def test_uniform_noise_is_where_the_two_objectives_agree(counts):
    p = counts.double() / counts.sum(1, keepdim=True)
    uniform = emb.negative_sampling_optimum(counts, torch.full((V,), 1 / V, dtype=torch.float64), 5)
    assert torch.allclose(torch.softmax(uniform, 1), p, atol=1e-14)
    other = emb.negative_sampling_optimum(counts, emb.noise_distribution(counts.sum(0), 1.0), 5)
    assert (torch.softmax(other, 1) - p).abs().max() > 0.01


@pytest.mark.equation("eq-keep-probability")
def test_keep_probability(equation):
    t, f = 1e-3, [1e-4, 1e-3, 2.6e-3, 2.63e-3, 1e-2, 0.07]
    total = 10**9
    counts = torch.tensor([round(x * total) for x in f] + [total - sum(round(x * total) for x in f)])
    ours = emb.keep_probability(counts, t)[: len(f)]
    # As word2vec.c draws: a token goes if ran < r / 65536 for a random r of 16 bits. All of them are counted here.
    oracle = []
    for cn in (round(x * total) for x in f):
        ran = (math.sqrt(cn / (t * total)) + 1) * (t * total) / cn
        oracle.append(sum(not ran < r / 65536 for r in range(65536)) / 65536)
    equation.holds(ours, oracle, tolerance=2e-5)
    equation.rejects([min(1.0, math.sqrt(t / x)) for x in f], oracle)  # the paper's rule
    equation.rejects([min(1.0, (math.sqrt(x / t) - 1) * t / x) if x > t else 1.0 for x in f], oracle)  # sign
    golden_squared = ((1 + math.sqrt(5)) / 2) ** 2
    assert 2.6 < golden_squared < 2.63 and ours[2] == 1 and ours[3] < 1
    assert ours[5].item() == pytest.approx(0.134, abs=5e-4)


@pytest.mark.equation("eq-subsampling-shift")
def test_subsampling_shift(equation, counts):
    keep = torch.tensor([1, 0.9, 0.7, 0.5, 0.3, 0.2], dtype=torch.float64)
    q = emb.noise_distribution(counts.sum(0), 0.75)
    thinned = counts * keep[:, None] * keep[None, :]  # expected counts when each token stays by itself
    oracle = emb.negative_sampling_optimum(thinned, q, 5)
    before = emb.negative_sampling_optimum(counts, q, 5)
    p = counts.double() / counts.sum(1, keepdim=True)
    equation.holds(before + torch.log(keep) - torch.log(p @ keep)[:, None], oracle)
    equation.rejects(before + torch.log(keep), oracle)
    both = before + torch.log(keep) + torch.log(keep)[:, None] - torch.log(p @ keep)[:, None]
    equation.rejects(both, oracle)  # the centre's factor does not cancel by itself


# ----------------------------------------------------------------------------------------- GloVe


@pytest.fixture
def glove_problem(generator):
    """w, w̃ [V, D], b, b̃ [V], and a few entries of X."""
    draw = lambda *s: (torch.rand(*s, generator=generator, dtype=torch.float64) - 0.5).requires_grad_()  # noqa: E731
    entries = (torch.tensor([0, 0, 2, 4]), torch.tensor([1, 3, 0, 4]), torch.tensor([0.5, 30.0, 100.0, 400.0]).double())
    return (draw(V, D), draw(V, D), draw(V), draw(V)), entries


@pytest.mark.equation("eq-glove")
def test_glove_loss(equation, glove_problem):
    (w, w_tilde, b, b_tilde), (rows, columns, x) = glove_problem
    oracle, plus, unweighted, uncapped = 0.0, 0.0, 0.0, 0.0
    for i, j, value in zip(rows.tolist(), columns.tolist(), x.tolist()):
        weight = min(1.0, (value / 100) ** 0.75)
        fit = (w[i] @ w_tilde[j] + b[i] + b_tilde[j]).item()
        oracle += weight * (fit - math.log(value)) ** 2
        plus += weight * (fit + math.log(value)) ** 2
        unweighted += (fit - math.log(value)) ** 2
        uncapped += (value / 100) ** 0.75 * (fit - math.log(value)) ** 2
    equation.holds(glove.glove_loss(w, w_tilde, b, b_tilde, rows, columns, x).detach(), oracle)
    equation.rejects(plus, oracle)  # the residual's sign, a mistake that peers shipped
    equation.rejects(unweighted, oracle)
    equation.rejects(uncapped, oracle)  # the second line's minimum


@pytest.mark.equation("eq-glove-gradient")
def test_glove_gradient(equation, glove_problem):
    parameters, entries = glove_problem
    oracle = torch.autograd.grad(glove.glove_loss(*parameters, *entries), parameters)
    ours = glove.glove_gradients(*(p.detach() for p in parameters), *entries)
    (w, w_tilde, b, b_tilde), (rows, columns, x) = [[p.detach() for p in parameters], entries]
    residual = (w[rows] * w_tilde[columns]).sum(1) + b[rows] + b_tilde[columns] - torch.log(x)
    weighted = (x / 100).clamp(max=1) ** 0.75 * residual
    by_hand = torch.zeros_like(w).index_add_(0, rows, 2 * weighted[:, None] * w_tilde[columns])
    equation.holds(by_hand, oracle[0])
    equation.rejects(by_hand / 2, oracle[0])  # the factor 2
    for mine, theirs in zip(ours, oracle):
        equation.holds(mine, theirs)
    equation.rejects(torch.zeros_like(b).index_add_(0, columns, 2 * weighted), oracle[2])  # index


@pytest.mark.equation("eq-glove-pmi")
def test_glove_with_these_biases_fits_pmi(equation, counts):
    x = counts.double()
    x = x + x.T
    log_x, marginal, total = torch.log(x), x.sum(1), x.sum()
    bias = torch.log(marginal) - torch.log(total) / 2
    fitted = log_x - bias[:, None] - bias[None, :]  # what w · w̃ must be where the residual is 0
    pmi = torch.log((x / total) / ((marginal / total)[:, None] * (marginal / total)[None, :]))
    equation.holds(fitted, pmi)
    equation.rejects(log_x - torch.log(marginal)[:, None] - torch.log(marginal)[None, :], pmi)  # log X dropped
    # The loss itself says so: with U Σ Vᵀ = PMI as tables and these biases it is zero.
    left, values, right = torch.linalg.svd(pmi)
    rows, columns = torch.cartesian_prod(torch.arange(V), torch.arange(V)).T
    loss = glove.glove_loss(left * values, right.T.contiguous(), bias, bias, rows, columns, x.flatten())
    assert loss < 1e-20


def test_distance_weights():
    m = 5
    ours = [(m - d + 1) / m for d in range(1, m + 1)]
    assert ours == [sum(drawn >= d for drawn in range(1, m + 1)) / m for d in range(1, m + 1)]
    # GloVe's 1/d, read off the counts of a text in which each distance has a pair of its own.
    vocabulary = list(range(m + 1))
    rows, columns, values = co_occurrences_of(vocabulary, window=m)
    from_first = {c: x for r, c, x in zip(rows, columns, values) if r == 0}
    assert [from_first[d] for d in range(1, m + 1)] == pytest.approx([1 / d for d in range(1, m + 1)])


def co_occurrences_of(ids, window):
    from lmcourse.data import Vocabulary

    vocabulary = Vocabulary(tuple(f"word{i}" for i in ids), torch.ones(len(ids), dtype=torch.int64))
    entries = glove.cooccurrences(torch.tensor([*ids, len(ids)]), vocabulary, window=window)
    return tuple(x.tolist() for x in entries)


# ---------------------------------------------------------------------------------------- limits


@pytest.mark.equation("eq-static-variance")
def test_no_function_of_a_static_vector_beats_the_larger_share(equation, generator):
    table, word = torch.rand(V, D, generator=generator, dtype=torch.float64), 2
    static = table[torch.full((40,), word)]  # one vector an occurrence, whatever the sentence
    senses = torch.tensor([0] * 30 + [1] * 10)
    in_context = static + senses[:, None] * torch.tensor([0.3, 0.0, -0.2]).double()
    equation.holds(static.var(0, correction=0), torch.zeros(D))
    equation.rejects(in_context.var(0, correction=0), torch.zeros(D))  # what a vector that sees its sentence would have

    def best(vectors, truth):
        """The accuracy of the best of 4,000 linear classifiers: random weights and thresholds, both signs."""
        weights = torch.rand(2000, D + 1, generator=generator, dtype=torch.float64) - 0.5
        says = (vectors @ weights[:, :D].T + weights[:, D] > 0).long()  # [40, 2000]
        right = (says == truth[:, None]).double().mean(0)
        return torch.maximum(right, 1 - right).max()

    equation.holds(best(static, senses), 30 / 40)
    equation.rejects(1 / 2, best(static, senses))  # one over the number of senses is the bound for equal shares alone
    equation.rejects(best(in_context, senses), 30 / 40)  # the bound is the static vector's, not the classifiers'
    equation.holds(best(static, torch.tensor([0, 1] * 20)), 1 / 2)


def test_three_senses_and_a_coin(generator):
    """The exercise: dice do not help, and balanced accuracy is a third whatever they are."""
    shares = [Fraction(6, 10), Fraction(3, 10), Fraction(1, 10)]
    for a in range(11):
        for b in range(11 - a):
            r = [Fraction(a, 10), Fraction(b, 10), Fraction(10 - a - b, 10)]
            assert sum(x * p for x, p in zip(r, shares)) <= Fraction(6, 10)
            assert sum(r) / 3 == Fraction(1, 3)


@pytest.fixture
def senses(generator):
    """Counts of two sense-words and of the merged word over V contexts, and the shares of pairs."""
    counts = torch.tensor([[40, 3, 25, 1, 9, 2], [2, 30, 1, 8, 60, 19]])
    return counts, counts.sum(0, keepdim=True), counts.sum(1).double() / counts.sum()


@pytest.mark.equation("eq-mixture")
@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
def test_mixture_for_any_noise(equation, senses, power):
    counts, merged, share = senses
    q, k = emb.noise_distribution(merged[0], power), 5
    fit = lambda n: minimise(lambda x: emb.expected_negative_sampling_loss(x, n, q, k), torch.zeros(n.shape).double())  # noqa: E731
    x_senses, x_word = fit(counts), fit(merged)[0]
    mixture = torch.log((share[:, None] * torch.exp(x_senses)).sum(0))
    equation.holds(mixture, x_word, tolerance=1e-9)
    equation.rejects((share[:, None] * x_senses).sum(0), x_word)  # the average
    equation.rejects(torch.logsumexp(x_senses, 0), x_word)  # shares forgotten
    equation.rejects(torch.log(torch.exp(x_senses).mean(0)), x_word)  # equal shares


def test_dropping_negatives_that_equal_the_target_breaks_the_identity(senses):
    """word2vec.c skips a negative that is the context itself. Pairs and draws are summed as they happen."""
    counts, merged, share = senses
    q = emb.noise_distribution(merged[0], 0.75)
    used = q.expand(V, V) * (1 - torch.eye(V).double())  # row: the pair's context; column: the draw

    def fit(n):
        p = n.double() / n.sum(1, keepdim=True)
        loss = lambda x: -(p * logsigmoid(x) + 5 * (p @ used) * logsigmoid(-x))  # noqa: E731
        return minimise(loss, torch.zeros(n.shape).double())

    mixture = torch.log((share[:, None] * torch.exp(fit(counts))).sum(0))
    assert (mixture - fit(merged)[0]).abs().max() > 0.1


@pytest.mark.equation("eq-mixture-bounds")
def test_mixture_bounds(equation, senses):
    counts, merged, share = senses
    q = emb.noise_distribution(merged[0], 0.75)
    x, word = emb.negative_sampling_optimum(counts, q, 5), emb.negative_sampling_optimum(merged, q, 5)[0]

    def violation(lower, upper):
        return torch.stack([lower - word, word - upper]).clamp_min(0).max()

    average, largest = (share[:, None] * x).sum(0), x.max(0).values
    third = (x + torch.log(share)[:, None]).max(0).values
    equation.holds(violation(average, largest), 0.0)
    equation.holds(violation(third, largest), 0.0)
    equation.rejects(violation(largest, largest), 0.0)  # the maximum is not a lower bound
    equation.rejects(violation(third, average), 0.0)  # nor the average an upper one
    equation.rejects(violation((x - torch.log(share)[:, None]).max(0).values, largest), 0.0)  # sign of log p


@pytest.mark.equation("eq-mixture-expansion")
def test_mixture_expansion_to_second_order(equation):
    """The remainder shrinks like the cube of the spread: halving the spread divides it by eight."""
    p, direction = torch.tensor([0.3, 0.7]).double(), torch.tensor([1.0, -0.4]).double()

    def remainder(scale, factor=0.5):
        x = 2.0 + scale * direction
        mean = (p * x).sum()
        return torch.log((p * torch.exp(x)).sum()) - mean - factor * (p * (x - mean) ** 2).sum()

    equation.holds(torch.log2(remainder(1e-2) / remainder(5e-3)), 3.0, tolerance=1e-2)
    equation.rejects(torch.log2(remainder(1e-2, 1.0) / remainder(5e-3, 1.0)), 3.0)  # the factor 1/2
    equation.rejects(torch.log2(remainder(1e-2, 0.0) / remainder(5e-3, 0.0)), 3.0)  # first order only


# ------------------------------------------------------------- what the page says without a label


def test_scores_of_zero_cost_log_2_a_term_and_log_v(generator):
    v, ids = torch.rand(V, D, generator=generator, dtype=torch.float64), torch.arange(V)
    for k in (1, 5):
        negatives = torch.randint(0, V, (V, k), generator=generator)
        loss = emb.negative_sampling_loss(v, torch.zeros_like(v), ids, ids.flip(0), negatives)
        assert loss.item() == pytest.approx((k + 1) * math.log(2))
    assert emb.softmax_loss(v, torch.zeros_like(v), ids, ids.flip(0)).item() == pytest.approx(math.log(V))


def test_one_number_added_to_all_scores_moves_negative_sampling_alone(counts):
    q, x = emb.noise_distribution(counts.sum(0), 0.75), torch.zeros(V, V).double()
    far = emb.expected_negative_sampling_loss(x + 1000, counts, q, 5)
    assert far > 4000 and torch.allclose(torch.softmax(x + 1000, 1), torch.softmax(x, 1))


def test_curvature_at_the_optimum():
    """How far the two methods trust an entry: h'' = αβ / (α + β), by automatic differentiation."""
    for a, b in ((3.0, 5.0), (0.2, 40.0)):
        x = torch.tensor(math.log(a / b), dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(-a * logsigmoid(x) - b * logsigmoid(-x), x, create_graph=True)
        (curvature,) = torch.autograd.grad(slope, x)
        assert abs(slope.item()) < 1e-12 and curvature.item() == pytest.approx(a * b / (a + b))
        assert curvature < min(a, b)


def test_unit_output_vectors_leave_every_score_free(generator):
    scores = torch.rand(V, V, generator=generator, dtype=torch.float64)
    v, u = scores, torch.eye(V, dtype=torch.float64)
    assert torch.equal(v @ u.T, scores)


# --------------------------------------------------------------------------- numbers in solutions


def test_the_second_update_has_a_short_gradient():
    u = torch.tensor([[-0.125, 1.0], [0.443, 0.0], [0.375, -1.0]], dtype=torch.float64)
    p = torch.softmax(u @ torch.tensor([0.827, -0.5]).double(), 0)
    assert [round(x, 3) for x in p.tolist()] == [0.129, 0.340, 0.531]
    gradient = (p - torch.tensor([0.0, 1.0, 0.0])) @ u
    assert round(gradient.norm().item(), 2) == 0.42 and round(math.hypot(math.log(2) / 2, 1.0), 2) == 1.06


def test_the_loss_in_plain_code(generator):
    def scores(v, u, negatives):
        return (v * u).sum(-1), (negatives @ v.unsqueeze(-1)).squeeze(-1)

    def loss(v, u, negatives):
        positive, noise = scores(v, u, negatives)
        return -(logsigmoid(positive) + logsigmoid(-noise).sum(-1)).mean()

    def wrong(v, u, negatives):
        positive, noise = scores(v, u, negatives)
        return -(logsigmoid(positive) + logsigmoid(-noise.sum(-1))).mean()

    B, K = 4, 3
    v, u, negatives = (torch.rand(*s, generator=generator) for s in ((B, D), (B, D), (B, K, D)))
    r, table = torch.arange(B), torch.cat([u, negatives.reshape(-1, D)])
    theirs = emb.negative_sampling_loss(v, table, r, r, B + torch.arange(B * K).view(B, K))
    assert torch.allclose(loss(v, u, negatives), theirs)
    one, noise = torch.ones(1, 1), torch.tensor([[[5.0], [-5.0]]])
    assert round(wrong(one, one, noise).item(), 2) == 1.01 and round(loss(one, one, noise).item(), 2) == 5.33
    assert round(math.log1p(math.exp(5)) + math.log1p(math.exp(-5)), 2) == 5.01
    assert round(math.log(2), 2) == 0.69 and round(math.log1p(math.exp(-1)), 2) == 0.31


def test_all_biases_for_which_glove_fits_mutual_information(counts):
    x = counts.double() + counts.double().T
    rows, total = x.sum(1), x.sum()
    pmi = torch.log(x * total / (rows[:, None] * rows))
    left, values, right = torch.linalg.svd(pmi)
    ids = torch.cartesian_prod(torch.arange(V), torch.arange(V)).T
    loss = lambda w, b, b_tilde: glove.glove_loss(w, right.T.contiguous(), b, b_tilde, *ids, x.flatten())  # noqa: E731
    base = torch.log(rows) - torch.log(total) / 2
    for t in (-2.0, 0.0, 0.7):
        assert loss(left * values, base + t, base - t) < 1e-20
    assert loss(left * values, base + 0.1, base) > 1e-3  # moved on one side alone
    p, k = rows / total, 5
    q = emb.noise_distribution(x.sum(0), 0.75)
    optimum = emb.negative_sampling_optimum(x, q, k)
    shift = torch.log(p) / 4 + torch.log((p**0.75).sum()) - math.log(k)
    u, d, w = torch.linalg.svd(optimum)
    assert glove.glove_loss(u * d, w.T.contiguous(), base, base - shift, *ids, x.flatten()) < 1e-20


def test_changing_the_share():
    def distance(share, gap):
        return math.log(share + (1 - share) * math.exp(gap)) - (1 - share) * gap

    rows = [(2, 0.43, 0.28), (3, 0.86, 0.73), (4, 1.33, 1.41), (6, 2.31, 3.08), (-4, 1.33, 0.27)]
    for gap, half, tenth in rows:
        assert (round(distance(1 / 2, gap), 2), round(distance(10 / 11, gap), 2)) == (half, tenth)
    change = lambda gap: distance(10 / 11, gap) - distance(1 / 2, gap)  # noqa: E731
    assert change(3.67) < 0 < change(3.68)
    assert all(change(-gap / 10) < 0 for gap in range(1, 100))
