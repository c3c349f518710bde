"""The equations of the chapter *The context decides the vector*, each against an oracle and with a wrong variant."""

import itertools
import math

import pytest
import torch
from equation import equation  # noqa: F401  (a fixture)
from lmcourse import course, data, layers, probes
from lmcourse.characters import MARKS, PADDING, WORD_BEGIN, WORD_END, CharacterCNN, Highway
from lmcourse.characters import bidirectional_lm, characters
from lmcourse.elmo import Direction, ELMo, ELMoConfig, LayerMix
from lmcourse.vocabulary import Vocabulary
from torch.nn import functional as F

VOCABULARY = Vocabulary(("the", "bank", "of", "river"))
CONFIG = ELMoConfig(len(VOCABULARY) + MARKS, ((1, 4), (3, 6)), character_width=5, width=6, units=9, longest=20)
SENTENCES = [["the", "bank", "of", "the", "river"], ["a", "bank"]]


def draw(*shape, seed=0):
    return torch.empty(shape, dtype=torch.float64).normal_(generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def model():
    """Weights larger than at the start of training, so that everything shows in what it gives."""
    generator = torch.Generator().manual_seed(0)
    made = ELMo(CONFIG, generator).double().eval()
    for p in made.parameters():
        p.data.add_(torch.empty(p.shape, dtype=torch.float64).normal_(0, 0.3, generator=generator))
    return made


# ------------------------------------------------------------------------------------- the objective


@pytest.mark.equation("eq-elmo-chain")
def test_a_joint_distribution_factorises_both_ways(equation):
    p = torch.softmax(draw(27), 0).view(3, 3, 3)  # any distribution of three words out of three
    given = lambda table, *ids: table[ids].sum()  # noqa: E731
    forward, backward, blanks = torch.ones_like(p), torch.ones_like(p), torch.ones_like(p)
    for a, b, c in itertools.product(range(3), repeat=3):
        forward[a, b, c] = given(p, a) * given(p, a, b) / given(p, a) * p[a, b, c] / given(p, a, b)
        last, two = p[:, :, c].sum(), p[:, b, c].sum()
        backward[a, b, c] = last * two / last * p[a, b, c] / two
        around = p[:, b, c].sum(), p[a, :, c].sum(), p[a, b, :].sum()  # each word given all the others
        blanks[a, b, c] = math.prod(p[a, b, c] / rest for rest in around)
    equation.holds(forward, p)
    equation.holds(backward, p)
    equation.rejects(blanks / blanks.sum(), p)  # what a model that saw both sides at once would multiply
    equation.rejects(forward * backward, p)


def prefix_by_prefix(model, sentences, leak=False):
    """Both directions' -log p, each word from a model that is given nothing but the words on its side."""
    n, total, words = len(VOCABULARY), torch.zeros(2, dtype=torch.float64), 0
    for sentence in sentences:
        targets = bidirectional_lm([sentence], VOCABULARY, 20)[1][0]
        ids, T = characters([sentence], 20), len(sentence) + 2
        for t in range(1, T):  # from the words before t
            left = model.read(ids[:, :t])[1][-1][0, -1]
            total[0] -= torch.log_softmax(model.softmax(left), 0)[targets[t]]
        for t in range(T - 1):  # from the words after t; with the leak from t on
            right = model.read(ids[:, t + (0 if leak else 1) :])[2][-1][0, 0]
            total[1] -= torch.log_softmax(model.softmax(right), 0)[targets[t]]
        words += T - 1
    return total / words, n


@pytest.mark.equation("eq-elmo-objective")
@torch.no_grad()
def test_the_objective_word_by_word(equation, model):
    ids, targets, weights = bidirectional_lm(SENTENCES, VOCABULARY, 20)
    ours = model.loss(ids, targets, weights.double())
    (forward, backward), _ = prefix_by_prefix(model, SENTENCES)
    equation.holds(ours, (forward + backward) / 2)
    equation.rejects(ours, (forward + prefix_by_prefix(model, SENTENCES, leak=True)[0][1]) / 2)  # reads its target
    equation.rejects(ours, forward)  # one direction


@pytest.mark.equation("eq-elmo-shared-gradient")
def test_shared_parts_hear_both_directions_and_lstms_their_own(equation, model):
    ids, targets, weights = bidirectional_lm(SENTENCES, VOCABULARY, 20)
    weights = weights.double()
    _, left, right, _ = model.read(ids)
    forward = model.one_loss(left[-1][:, :-1], targets[:, 1:], weights[:, 1:])
    backward = model.one_loss(right[-1][:, 1:], targets[:, :-1], weights[:, 1:])
    for shared in (model.softmax.weight, model.tokens.projection.weight):
        slope = lambda loss, p=shared: torch.autograd.grad(loss, p, retain_graph=True)[0]  # noqa: E731
        # The oracle: a difference quotient of the joint loss, in float64, at three entries of the shared matrix.
        oracle, entries = [], ((0, 0), (1, 2), (3, 4))
        for i, j in entries:
            found = []
            for step in (1e-6, -1e-6):
                shared.data[i, j] += step
                found.append(2 * model.loss(ids, targets, weights).item())
                shared.data[i, j] -= step
            oracle.append((found[0] - found[1]) / 2e-6)
        pick = lambda g: torch.stack([g[i, j] for i, j in entries])  # noqa: E731
        equation.holds(pick(slope(forward) + slope(backward)), oracle, tolerance=1e-7)
        equation.rejects(pick(slope(forward)), oracle)  # as if the models were trained apart
        equation.rejects(pick(slope(forward) - slope(backward)), oracle)
    own = list(model.forwards.parameters())
    joint = torch.autograd.grad(2 * model.loss(ids, targets, weights), own, retain_graph=True)
    alone = torch.autograd.grad(forward, own, retain_graph=True)
    for a, b in zip(joint, alone):
        equation.holds(a, b)
    others = torch.autograd.grad(backward, own, allow_unused=True)
    assert others == (None,) * len(own)


# -------------------------------------------------------------------------------------- the token layer


def by_loops(cnn, ids, pool=max, flipped=False):
    """ReLU of the greatest window, number by number, for one word's ids with its padding."""
    table, found = cnn.characters.weight.tolist(), []
    for convolution in cnn.convolutions:
        wide = convolution.kernel_size[0]
        for filter_, bias in zip(convolution.weight.tolist(), convolution.bias.tolist()):
            scores = []
            for i in range(len(ids) - wide + 1):
                places = range(wide - 1, -1, -1) if flipped else range(wide)
                rows = [table[ids[i + k]] for k in places]
                scores.append(bias + sum(filter_[d][k] * row[d] for k, row in enumerate(rows) for d in range(len(row))))
            found.append(max(0.0, pool(scores)))
    return found


@pytest.mark.equation("eq-elmo-convolution")
@torch.no_grad()
def test_the_convolution_number_by_number(equation, model):
    cnn = model.tokens
    word = [WORD_BEGIN, *(byte + 1 for byte in b"bank"), WORD_END]
    padded = word + [PADDING] * cnn.widest
    x = cnn.characters(torch.tensor([padded])).mT
    ours = torch.relu(torch.cat([convolution(x).amax(-1) for convolution in cnn.convolutions], -1))[0]
    equation.holds(ours, by_loops(cnn, padded))
    equation.rejects(ours, by_loops(cnn, padded, pool=lambda s: sum(s) / len(s)))  # the mean over places
    equation.rejects(ours, by_loops(cnn, padded, flipped=True))  # a convolution as in mathematics, turned round
    whole = cnn.projection(cnn.highways(ours))
    equation.holds(whole, cnn(torch.tensor([[word]]))[0, 0])


@pytest.mark.equation("eq-elmo-worked")
def test_the_worked_example(equation):
    e = {"a": torch.tensor([1.0, 0.0]).double(), "b": torch.tensor([0.0, 1.0]).double()}
    filter_ = torch.tensor([[1.0, -1.0], [2.0, 1.0]]).double()
    score = lambda pair: (torch.stack([e[c] for c in pair]) * filter_).sum() - 1  # noqa: E731
    pooled = lambda word: torch.stack([score(word[i : i + 2]) for i in range(len(word) - 1)]).max()  # noqa: E731
    equation.holds(torch.stack([pooled("ab"), pooled("ba"), pooled("abab")]), [1.0, 0.0, 1.0])
    equation.rejects(score("ba"), score("ab"))
    highway = Highway(1).double()
    highway.transform.weight.data.fill_(3)
    highway.transform.bias.data.zero_()
    highway.gate.weight.data.zero_()
    highway.gate.bias.data.fill_(-2)
    out = highway(torch.ones(1).double()).item()
    equation.holds(out, 1 + 2 * (1 / (1 + math.exp(2))))
    assert round(out, 3) == 1.238 and round(1 / (1 + math.exp(2)), 3) == 0.119


@pytest.mark.equation("eq-elmo-highway")
@torch.no_grad()
def test_the_highway(equation):
    layer, x = Highway(4).double(), draw(4)
    for i, p in enumerate(layer.parameters()):
        p.data.copy_(draw(*p.shape, seed=i + 1))
    oracle, swapped = [], []
    for i in range(4):
        z = float(layer.gate.bias[i]) + sum(float(layer.gate.weight[i, j] * x[j]) for j in range(4))
        y = float(layer.transform.bias[i]) + sum(float(layer.transform.weight[i, j] * x[j]) for j in range(4))
        g, y = 1 / (1 + math.exp(-z)), max(0.0, y)
        oracle.append(g * y + (1 - g) * float(x[i]))
        swapped.append((1 - g) * y + g * float(x[i]))
    equation.holds(layer(x), oracle)
    equation.rejects(layer(x), swapped)


@pytest.mark.equation("eq-elmo-blind")
@torch.no_grad()
def test_words_with_the_same_windows_are_one_word(equation):
    cnn = CharacterCNN(((1, 5), (2, 5), (5, 20)), 7, 4).double()
    for i, p in enumerate(cnn.parameters()):
        p.data.copy_(draw(*p.shape, seed=i))
    vector = lambda n: cnn(characters([["t" + n * "a" + "sty"]]))[0, 1]  # noqa: E731
    equation.holds(vector(9), vector(5))
    equation.holds(vector(30), vector(5))
    equation.rejects(vector(3), vector(5))  # some window of five holds only in one of them


# ------------------------------------------------------------------------------------------- layers


@pytest.mark.equation("eq-elmo-layers")
@torch.no_grad()
def test_layers_are_added_to_what_they_read(equation):
    direction, x = Direction(CONFIG).double().eval(), draw(2, 5, 6)
    first, second = direction(x)
    below = direction.lstms[0].plain(x)
    above = direction.lstms[1].plain(below)
    equation.holds(first, below)
    equation.holds(second, below + above)
    equation.rejects(second, above)  # the residual forgotten
    equation.rejects(first, below + x)  # the first layer has none


def mixed(states, s, gamma):
    total = sum(math.exp(v) for v in s.tolist())
    return gamma * sum(math.exp(v) / total * h for v, h in zip(s.tolist(), states))


@pytest.mark.equation("eq-elmo-mix")
@torch.no_grad()
def test_the_mix(equation):
    mix, states = LayerMix(3).double(), draw(3, 4, 6)
    mix.scores.copy_(draw(3, seed=1))
    mix.scale.fill_(1.7)
    equation.holds(mix(states), mixed(states, mix.scores, 1.7))
    equation.rejects(mix(states), 1.7 * sum(s * h for s, h in zip(mix.scores, states)))  # not normalised


@pytest.mark.equation("eq-elmo-mix-gradient")
def test_the_gradient_of_the_mix(equation):
    mix, states, upstream = LayerMix(3).double(), draw(3, 4, 6), draw(4, 6, seed=2)
    mix.scores.data.copy_(draw(3, seed=1))
    mix.scale.data.fill_(1.7)
    oracle = torch.autograd.grad((mix(states) * upstream).sum(), (mix.scores, mix.scale))
    w, gamma = mix.weights.detach(), 1.7
    mean = torch.tensordot(w, states, 1)
    by_score = torch.stack([gamma * w[j] * (upstream * (states[j] - mean)).sum() for j in range(3)])
    equation.holds(by_score, oracle[0])
    equation.holds((upstream * mean).sum(), oracle[1])
    equation.rejects(torch.stack([gamma * w[j] * (upstream * states[j]).sum() for j in range(3)]), oracle[0])
    equation.rejects(gamma * (upstream * mean).sum(), oracle[1])  # a γ too many
    equation.holds(by_score.sum(), 0.0)  # one number added to all scores changes nothing


@pytest.mark.equation("eq-elmo-projection-cost")
def test_weights_of_a_layer_counted(equation):
    with torch.device("meta"):
        layer = ELMo(ELMoConfig.published()).forwards.lstms[0]
    counted = sum(p.numel() for p in layer.parameters())
    D, n = 512, 4096
    equation.holds(4 * n * (2 * D + 1) + n * D, counted)
    equation.rejects(4 * n * (D + n + 1), counted)  # an LSTM of 4096 units without projection
    assert counted == 18_890_752


# -------------------------------------------------------------------------------- what cannot be added up


@pytest.mark.equation("eq-elmo-additive")
@torch.no_grad()
def test_a_sum_of_two_sides_has_no_interaction(equation, model):
    sentences = [[left, "bank", right] for left in ("the", "no") for right in ("of", "river")]
    states = model.states(characters(sentences, 20))[:, :, 2]  # [3, 4, 12] of bank
    head = draw(3, 12, seed=3)
    mix = torch.tensordot(torch.tensor([0.2, 0.3, 0.5]).double(), states, 1)
    contrast = lambda s: s[0] - s[1] - s[2] + s[3]  # noqa: E731
    equation.holds(contrast(mix @ head.T), torch.zeros(3))
    equation.rejects(contrast(torch.tanh(mix @ head.T)), torch.zeros(3))  # a hidden layer's units have one
    last = model.states(characters(sentences, 20))[2, :, 3]
    equation.rejects(contrast(last @ head.T), torch.zeros(3))  # so has the last word's state


@pytest.mark.equation("eq-elmo-xor")
def test_no_additive_score_loses_less_than_log_2(equation):
    y = torch.tensor([[-1.0, 1.0], [1.0, -1.0]]).double()
    loss = lambda s: F.softplus(-y * s).mean()  # noqa: E731
    a, b = draw(2).requires_grad_(), draw(2, seed=1).requires_grad_()
    optimiser = torch.optim.LBFGS([a, b], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-12)

    def closure():
        optimiser.zero_grad()
        value = loss(a[:, None] + b)
        value.backward()
        return value

    optimiser.step(closure)
    equation.holds(loss(a[:, None] + b), math.log(2))
    equation.rejects(loss(3 * y), math.log(2))  # with an interaction it goes to 0
    for seed in range(200):
        left, right = 3 * draw(2, seed=seed), 3 * draw(2, seed=seed + 1000)
        score = left[:, None] + right
        assert loss(score) >= math.log(2) and int((y * score > 0).sum()) <= 3


@pytest.mark.equation("eq-elmo-steps")
def test_the_longest_chain_of_steps(equation):
    def longest(T, L, needs):
        depth = {}
        for l, t in itertools.product(range(1, L + 1), range(T)):  # noqa: E741
            depth[l, t] = 1 + max((depth.get(n, 0) for n in needs(l, t, T)), default=0)
        return depth[L, T - 1]

    recurrent = lambda l, t, T: [(l, t - 1), (l - 1, t)]  # noqa: E731, E741
    every = lambda l, t, T: [(l - 1, u) for u in range(T)]  # noqa: E731, E741
    sizes = [(1, 1), (1, 7), (2, 7), (3, 20)]
    oracle = [longest(T, L, recurrent) for L, T in sizes]
    equation.holds([T + L - 1 for L, T in sizes], oracle)
    equation.rejects([T * L for L, T in sizes], oracle)
    equation.holds([L for L, _ in sizes], [longest(T, L, every) for L, T in sizes])


# ------------------------------------------------------------------------- numbers of the exercises' solutions


def test_the_solutions_by_hand():
    e = {"a": torch.tensor([1.0, 0.0]), "b": torch.tensor([0.0, 1.0])}
    both = [(torch.tensor([[1.0, -1.0], [2.0, 1.0]]), -1.0), (torch.tensor([[0.0, 2.0], [-1.0, 1.0]]), 0.0)]
    found = {}
    for word in ("ab", "ba", "abab", "bb"):
        windows = [torch.stack([e[c] for c in word[i : i + 2]]) for i in range(len(word) - 1)]
        found[word] = [max(0.0, max(float((w * f).sum() + b) for w in windows)) for f, b in both]
    assert found == {"ab": [1, 1], "ba": [0, 1], "abab": [1, 1], "bb": [0, 3]}

    mix, states = LayerMix(2).double(), torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]]]).double()
    mix.scores.data.copy_(torch.tensor([0.0, math.log(3)]))
    mix.scale.data.fill_(2.0)
    r = mix(states)
    by_scores, by_scale = torch.autograd.grad(r, (mix.scores, mix.scale), torch.tensor([[1.0, -1.0]]).double())
    assert r.tolist() == [pytest.approx([0.5, 3.0])]
    assert by_scores.tolist() == pytest.approx([9 / 8, -9 / 8]) and float(by_scale) == pytest.approx(-5 / 4)

    score = torch.tensor([-4.0, -1.0])[:, None] + torch.tensor([0.0, 2.0])
    assert score.tolist() == [[-4, -2], [-1, 1]]


def test_the_halves_of_layer_1():
    model, items = course.load("elmo"), probes.probe_sentences()
    states = layers.states_at(model, [data.words(i.sentence) for i in items], [i.position for i in items])[1]
    found = []
    for half in states.chunk(2, 1):
        groups = probes.two_sense(half, items, torch.Generator().manual_seed(0), 10).groups
        found += [groups["different, left"], groups["different, right"]]
    assert found == pytest.approx([0.90, 0.39, 0.44, 0.90], abs=0.02)
