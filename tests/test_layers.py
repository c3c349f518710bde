"""Marked words, vectors by layer, linear probes, other scores of the two-sense probe, overlap of n-grams."""

import pytest
import torch
from lmcourse import layers, linear, marked, probes, senses, unseen
from lmcourse.characters import MARKS, characters
from lmcourse.data import Vocabulary, wordnet_examples
from lmcourse.elmo import ELMo, ELMoConfig
from lmcourse.embeddings import WordVectors


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def draw(*shape, seed=0):
    return torch.empty(shape, dtype=torch.float64).normal_(generator=generator(seed))


@pytest.fixture(scope="module")
def model():
    config = ELMoConfig(10 + MARKS, ((1, 4), (3, 6)), character_width=5, width=6, units=9, longest=20)
    return ELMo(config, generator()).double().eval()


@pytest.fixture(scope="module")
def examples():
    return marked.marked_words()


SENTENCES = [["the", "river", "bank"], ["a", "bank"], ["we", "sat", "on", "the", "bank", "of", "a", "river"], ["bank"]]
PLACES = [2, 1, 4, 0]


# ---------------------------------------------------------------------------------------- marked words


def test_each_word_stands_once_where_it_is_said_to_stand(examples):
    assert 25_000 < len(examples) < len(wordnet_examples())
    assert all(i.words[i.position] == i.word and i.words.count(i.word) == 1 for i in examples)
    assert {len(i.words) for i in examples} <= set(range(3, 31))
    assert max(len(i.words) for i in marked.marked_words(3, 5)) == 5


def test_of_two_kinds_is_balanced_word_by_word(examples):
    some = marked.of_two_kinds(examples)
    for word in {i.word for i in some}:
        kinds = [i.pos for i in some if i.word == word]
        assert kinds.count("n") == kinds.count("v") > 0
    assert {i.pos for i in marked.of_two_kinds(examples, ("n", "a"))} == {"n", "a"}


def test_sense_pairs_are_of_one_word_and_balanced(examples):
    two, same = marked.sense_pairs(examples, generator())
    assert len(two) == len(same) > 1000 and 2 * int(same.sum()) == len(same)
    for (a, b), one in zip(two.tolist(), same.tolist()):
        a, b = examples[a], examples[b]
        assert (a.word, a.pos) == (b.word, b.pos) and (a.synset == b.synset) == one and a.words != b.words
    again, _ = marked.sense_pairs(examples, generator())
    other, _ = marked.sense_pairs(examples, generator(1))
    assert torch.equal(two, again) and not torch.equal(two, other)
    with pytest.raises(ValueError, match="no word has two examples"):
        marked.sense_pairs(examples[:1], generator())


# ------------------------------------------------------------------------------------- vectors by layer


@torch.no_grad()
def test_states_at_are_those_of_each_sentence_alone(model):
    found = layers.states_at(model, SENTENCES, PLACES, batch=3)
    assert found.shape == (3, 4, 12)
    for i, (sentence, place) in enumerate(zip(SENTENCES, PLACES)):
        alone = model.states(characters([sentence], 20))[:, 0]
        torch.testing.assert_close(found[:, i], alone[:, place + 1])
        assert (found[1, i] - alone[1, place]).abs().max() > 1e-3, "an index off by one is found"
    with pytest.raises(ValueError, match="positions: got 3 for 4 sentences"):
        layers.states_at(model, SENTENCES, PLACES[:3])
    with pytest.raises(TypeError, match="model"):
        layers.states_at("elmo", SENTENCES, PLACES)


@torch.no_grad()
def test_sentence_means_leave_the_marks_out(model):
    found = layers.sentence_means(model, SENTENCES, batch=2)
    for i, sentence in enumerate(SENTENCES):
        alone = model.states(characters([sentence], 20))[:, 0, 1:-1].mean(1)
        torch.testing.assert_close(found[:, i], alone)
    with pytest.raises(ValueError, match="sentences"):
        layers.sentence_means(model, [["a"], []])


@torch.no_grad()
def test_token_vectors_are_layer_0(model):
    words = ["bank", "river", "bankify"]
    found = layers.token_vectors(model, words, batch=2)
    states = layers.states_at(model, [["the", w] for w in words], [1, 1, 1])[0]
    torch.testing.assert_close(found, states[:, :6])
    with pytest.raises(ValueError, match="words"):
        layers.token_vectors(model, [])


def test_static_vectors_around_a_word():
    wv = WordVectors(Vocabulary(("a", "b", "c")), torch.tensor([[1.0, 0], [0, 1], [2, 2]]))
    sentences, places = [["a", "x", "b", "c"], ["x"]], [2, 0]
    assert layers.surroundings(wv, sentences, places, 1).tolist() == [[0, 0, 2, 2], [0, 0, 0, 0]]
    assert layers.surroundings(wv, sentences, places, 2)[0].tolist() == [1, 0, 0, 0, 2, 2, 0, 0]
    assert layers.mean_of_others(wv, sentences, places).tolist() == [[1.5, 1], [0, 0]]
    with pytest.raises(ValueError, match="reach"):
        layers.surroundings(wv, sentences, places, 0)


@torch.no_grad()
def test_reach_by_hand(model):
    sentences, new = [["a", "b", "bank", "c", "d"], ["e", "f", "bank", "g", "h"]], ["river", "the"]
    found = layers.reach(model, sentences, 2, (1, 2), new)
    assert found.shape == (2, 3) and found[:, 0].abs().max() == 0
    own, oracle = layers.states_at(model, sentences, [2, 2]), torch.zeros(3).double()
    for k in (0, 4):
        for i, (s, w) in enumerate(zip(sentences, new)):
            moved = layers.states_at(model, [[*s[:k], w, *s[k + 1 :]]], [2])[:, 0]
            oracle += (moved - own[:, i]).norm(dim=1) / own[:, i].norm(dim=1) / 4
    torch.testing.assert_close(found[1], oracle)
    with pytest.raises(ValueError, match="distances"):
        layers.reach(model, sentences, 2, (3,), new)


# ---------------------------------------------------------------------------------------- linear probes


def test_groups_are_held_out_whole():
    groups = [i // 3 for i in range(60)]
    held = linear.hold_out(groups, generator())
    assert int(held.sum()) == 18 and all(len(set(held[3 * g : 3 * g + 3].tolist())) == 1 for g in range(20))
    assert not torch.equal(held, linear.hold_out(groups, generator(1)))
    with pytest.raises(ValueError, match="groups"):
        linear.hold_out(["one"] * 9, generator())


def test_a_linear_rule_is_found_and_noise_is_not():
    x, held = draw(600, 5), torch.arange(600) >= 400
    rule = (x[:, 0] - 2 * x[:, 3] > 0).long()
    coins = torch.randint(0, 2, (600,), generator=generator(5))
    assert linear.linear_probe(x, rule, held).double().mean() > 0.95
    assert 0.38 < linear.linear_probe(x, coins, held).double().mean() < 0.62
    parity = ((x[:, 0] > 0) ^ (x[:, 1] > 0)).long()
    assert linear.linear_probe(x, parity, held).double().mean() < 0.62, "a linear probe cannot"
    assert linear.linear_probe(torch.ones(600, 2), rule, held).sum() in (rule[held].sum(), 200 - rule[held].sum())


def test_the_probe_is_at_the_minimum_of_its_loss():
    x, y, held = draw(80, 3), torch.arange(80) % 3, torch.arange(80) >= 60
    scaled = linear.standardised(x, ~held)
    torch.testing.assert_close(scaled[:60].mean(0), torch.zeros(3).double())
    torch.testing.assert_close(scaled[:60].square().mean(0), torch.ones(3).double())
    weight = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    least = linear.minimise(lambda: (weight - torch.tensor([1.0, 2, 3])).square().sum() + 5, [weight])
    assert least == pytest.approx(5) and weight.tolist() == pytest.approx([1, 2, 3])
    assert len(linear.linear_probe(x, y, held)) == 20


def test_the_mix_goes_to_the_layer_that_knows():
    y, held = torch.randint(0, 2, (300,), generator=generator()), torch.arange(300) >= 200
    stack = draw(3, 300, 4, seed=1)
    stack[1, :, 0] += 4 * y
    for size in (1.0, 100.0):  # the sizes of layers do not matter
        weights, right = linear.mix_probe(lambda x: x, torch.stack([size * stack[0], *stack[1:]]), y, held)
        assert weights.argmax() == 1 and weights[1] > 0.6 and right.double().mean() > 0.9
        assert float(weights.sum()) == pytest.approx(1)
    near, _ = linear.mix_probe(lambda x: x, stack, y, held, stay=10.0)
    assert (near - 1 / 3).abs().max() < 0.05


def test_layers_of_one_size():
    found = linear.of_one_size(torch.stack([100 * draw(50, 4), draw(50, 4) + 7, torch.zeros(50, 4).double()]))
    torch.testing.assert_close(found[0], found[1])
    assert found[2].abs().max() == 0 and float(found[0].square().mean()) == pytest.approx(1)


def test_means_and_intervals():
    assert linear.group_means(torch.tensor([1.0, 3, 5]), ["a", "b", "a"]).tolist() == [3, 3]
    mean, low, high = linear.mean_interval(draw(400), generator())
    assert low < mean < high and high - low == pytest.approx(4 / 20, rel=0.2)


# --------------------------------------------------------------------------- the probe, by other scores


@pytest.fixture(scope="module")
def items():
    return probes.probe_sentences()


def told_apart(items, strength):
    """Noise, and one direction that tells a word's senses apart."""
    x = draw(len(items), 12)
    first = {item.word: item.synset for item in reversed(items)}
    x[:, 0] += strength * torch.tensor([float(first[i.word] == i.synset) for i in items])
    return x


def test_identical_vectors_score_one_half(items):
    same = torch.ones(len(items), 5)
    assert senses.paired_probe(same, items).eq(0.5).all()
    assert set(senses.pairwise(same, items).values()) == {0.5}


@pytest.mark.parametrize("score", [lambda x, i: float(senses.paired_probe(x, i).mean()),
                                   lambda x, i: sum(senses.pairwise(x, i).values()) / 21])  # fmt: skip
def test_what_tells_senses_apart_is_found_and_noise_is_chance(items, score):
    assert score(told_apart(items, 10.0), items) > 0.95
    assert 0.44 < score(told_apart(items, 0.0), items) < 0.56


def test_pairs_that_are_not_allowed_do_not_count(items):
    x = told_apart(items, 10.0)
    place = {id(item): k for k, item in enumerate(items)}
    assert place and len(senses.pairwise(x, items)) == 21
    assert senses.pairwise(x, items, lambda i, j: False) == {}
    within = lambda i, j: items[i].synset != items[j].synset  # noqa: E731
    assert senses.pairwise(x, items, within) == {}  # no sentence of one's own sense is left


# ----------------------------------------------------------------------------------------------- n-grams


def test_ngrams_and_overlap_by_hand():
    assert unseen.ngrams("at", 2) == {"<", "a", "t", ">", "<a", "at", "t>"}
    table = unseen.overlap(["at"], ["at", "ta", "zz"], 2)
    assert table.tolist() == [[1.0, pytest.approx(4 / 10), pytest.approx(2 / 11)]]
    plain = [[len(unseen.ngrams(a) & unseen.ngrams(b)) / len(unseen.ngrams(a) | unseen.ngrams(b))
              for b in ("bank", "banking", "river")] for a in ("bankify", "embank")]  # fmt: skip
    torch.testing.assert_close(unseen.overlap(["bankify", "embank"], ["bank", "banking", "river"]), torch.tensor(plain))
    with pytest.raises(ValueError, match="empty"):
        unseen.overlap([], ["a"])
    with pytest.raises(TypeError, match="word"):
        unseen.ngrams(7)


def test_a_place_outside_its_sentence_is_refused(model):
    table = WordVectors(Vocabulary(("the", "bank")), torch.eye(2))
    for position in (-1, 2):  # -1 would be the begin mark, 2 the end mark
        for call in (
            lambda p: layers.states_at(model, [["the", "bank"]], p),
            lambda p: layers.surroundings(table, [["the", "bank"]], p, 1),
            lambda p: layers.mean_of_others(table, [["the", "bank"]], p),
        ):
            with pytest.raises(ValueError, match=rf"positions\[0\]: got {position} in a sentence of 2 words"):
                call([position])


def test_a_probe_refuses_rows_that_do_not_fit():
    x, labels = torch.eye(4), torch.tensor([0, 1, 0, 1])
    for held_out in (torch.tensor([1, 0, 0, 0]), torch.zeros(4).bool(), torch.ones(4).bool(), torch.eye(3)[0].bool()):
        for call in (
            lambda h: linear.linear_probe(x, labels, h),
            lambda h: linear.mix_probe(lambda y: y, torch.stack([x, x]), labels, h),
        ):
            with pytest.raises(ValueError, match="held_out: got .* expected .4,. booleans"):
                call(held_out)
    with pytest.raises(ValueError, match="labels"):
        linear.linear_probe(x, labels[:2], torch.eye(4)[0].bool())
    with pytest.raises(ValueError, match="stay"):
        linear.mix_probe(lambda y: y, torch.stack([x, x]), labels, torch.eye(4)[0].bool(), stay=-1)


def test_a_mean_of_nothing_is_refused():
    with pytest.raises(ValueError, match="values"):
        linear.mean_interval([], torch.Generator().manual_seed(0))
    for values, groups in ((torch.ones(2), ["a"]), (torch.ones(0), [])):
        with pytest.raises(ValueError, match="groups"):
            linear.group_means(values, groups)
