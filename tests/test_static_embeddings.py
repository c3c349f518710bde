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
    # A pair that never occurs beside itself has PMI −∞ there: out of reach for one table.
    assert violation(torch.tensor([[-0.1, 0.0], [0.0, 1.0]])) > 0


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
    oracle = [min(1.0, (math.sqrt(x / t) + 1) * t / x) for x in f]
    equation.holds(ours, oracle)
    equation.rejects([min(1.0, math.sqrt(t / x)) for x in f], oracle)  # the paper's rule
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
    oracle, plus, unweighted = 0.0, 0.0, 0.0
    for i, j, value in zip(rows.tolist(), columns.tolist(), x.tolist()):
        weight = min(1.0, (value / 100) ** 0.75)
        fit = (w[i] @ w_tilde[j] + b[i] + b_tilde[j]).item()
        oracle += weight * (fit - math.log(value)) ** 2
        plus += weight * (fit + math.log(value)) ** 2
        unweighted += (fit - math.log(value)) ** 2
    equation.holds(glove.glove_loss(w, w_tilde, b, b_tilde, rows, columns, x).detach(), oracle)
    equation.rejects(plus, oracle)  # the residual's sign, a mistake that peers shipped
    equation.rejects(unweighted, oracle)


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


@pytest.mark.equation("eq-distance-weight")
def test_distance_weights(equation):
    m = 5
    ours = [(m - d + 1) / m for d in range(1, m + 1)]
    by_enumeration = [sum(drawn >= d for drawn in range(1, m + 1)) / m for d in range(1, m + 1)]
    equation.holds(ours, by_enumeration)
    equation.rejects([(m - d) / m for d in range(1, m + 1)], by_enumeration)  # off by one
    # GloVe's 1/d, read off the counts of a text in which each distance has a pair of its own.
    vocabulary = list(range(m + 1))
    rows, columns, values = co_occurrences_of(vocabulary, window=m)
    from_first = {c: x for r, c, x in zip(rows, columns, values) if r == 0}
    oracle = [1 / d for d in range(1, m + 1)]
    equation.holds([from_first[d] for d in range(1, m + 1)], oracle)
    equation.rejects([1.0] * m, oracle)


def co_occurrences_of(ids, window):
    from lmcourse.data import Vocabulary

    vocabulary = Vocabulary(tuple(f"word{i}" for i in ids), torch.ones(len(ids), dtype=torch.int64))
    entries = glove.cooccurrences(torch.tensor([*ids, len(ids)]), vocabulary, window=window)
    return tuple(x.tolist() for x in entries)


# ---------------------------------------------------------------------------------------- limits


@pytest.mark.equation("eq-lookup")
def test_lookup_is_a_product_with_a_one_hot_vector(equation, tables):
    table = tables[0].detach()
    one_hot = torch.zeros(V, dtype=torch.float64)
    one_hot[4] = 1
    equation.holds(table.T @ one_hot, table[4])
    equation.rejects(table.T @ one_hot, table[3])


@pytest.mark.equation("eq-static-variance")
def test_no_function_of_a_static_vector_beats_the_larger_share(equation, generator):
    table = torch.rand(V, D, generator=generator, dtype=torch.float64)
    word = 2
    occurrences = table[torch.full((40,), word)]  # one vector an occurrence, whatever the sentence
    equation.holds(occurrences.var(0, correction=0), torch.zeros(D))
    in_context = occurrences + torch.rand(40, D, generator=generator, dtype=torch.float64)
    equation.rejects(in_context.var(0, correction=0), torch.zeros(D))
    # Any g: its answer for the one point is one sense. All of them, scored against 30 : 10 and 20 : 20.
    for senses in (torch.tensor([0] * 30 + [1] * 10), torch.tensor([0] * 20 + [1] * 20)):
        accuracy = torch.stack([(senses == answer).double().mean() for answer in (0, 1)])
        equation.holds(accuracy.max(), max(senses.bincount().tolist()) / len(senses))
    assert accuracy.tolist() == [0.5, 0.5]


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
    """word2vec.c skips a negative that is the context itself: then p(c|w) enters the optimum twice."""
    counts, merged, share = senses
    q = emb.noise_distribution(merged[0], 0.75)

    def optimum(n):  # a negative c is kept only beside pairs whose context is not c
        n = n.double()
        return torch.log(n / (5 * (n.sum(1, keepdim=True) - n) * q))

    mixture = torch.log((share[:, None] * torch.exp(optimum(counts))).sum(0))
    assert (mixture - optimum(merged)[0]).abs().max() > 0.1


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
