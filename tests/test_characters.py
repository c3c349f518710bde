"""Words as characters: ids by hand, the convolution against its sums, vectors that do not depend on padding."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lmcourse import characters as characters_module
from lmcourse import data
from lmcourse.characters import CharacterCNN, Highway, bidirectional_lm, characters, spelling, words_in
from lmcourse.vocabulary import Vocabulary

SENTENCES = [["the", "river", "bank"], ["bankify"], []]
FILTERS = ((1, 3), (2, 4), (5, 6))


def cnn(longest=20, **options):
    """Random weights of a size at which nothing is lost: also for biases."""
    g = torch.Generator().manual_seed(0)
    layer = CharacterCNN(FILTERS, 7, **dict(character_width=4, highways=2, longest=longest) | options).double()
    for p in layer.parameters():
        p.data.normal_(0, 0.5, generator=g)
    layer.characters.weight.data[0] = 0
    return layer


# ---------------------------------------------------------------------------------------------------- text to ids


def test_spelling_by_hand():
    assert spelling("ab") == [259, 98, 99, 260]
    assert spelling("é") == [259, 0xC3 + 1, 0xA9 + 1, 260]
    assert spelling("") == [259, 260]
    assert spelling("\x00\ud800") == [259, 1, 260], "a zero byte is not padding; what UTF-8 cannot say is left out"


def test_long_words_are_cut_and_keep_their_marks():
    assert spelling("abcdef", longest=5) == [259, 98, 99, 100, 260]
    assert len(spelling("a" * 48)) == len(spelling("a" * 90)) == 50
    assert spelling("a" * 47)[-1] == spelling("a" * 90)[-1] == 260


def test_ids_of_sentences():
    ids = characters([["a", "bc"], ["d"]])
    begin, end, nothing = [259, 257, 260, 261], [259, 258, 260, 261], [0, 0, 0, 0]
    a, bc, d = [259, 98, 260, 261], [259, 99, 100, 260], [259, 101, 260, 261]
    assert ids.dtype == torch.int64 and ids.tolist() == [[begin, a, bc, end], [begin, d, end, nothing]]
    assert words_in(ids).tolist() == [[True] * 4, [True] * 3 + [False]]
    assert characters([[]]).tolist() == [[begin[:3], end[:3]]]


def test_words_of_the_course_fit():
    sentences = data.sentences(data.documents("addresses", "validation"))[:2000]
    ids = characters(sentences)
    assert ids.shape[:2] == (2000, max(map(len, sentences)) + 2) and ids.shape[2] < 30
    for sentence, row in zip(sentences[::500], ids[::500]):
        assert [spelling(w) for w in sentence] == [
            word[: len(spelling(w))].tolist() for w, word in zip(sentence, row[1:])
        ]


def test_what_the_objective_is_given():
    vocabulary = Vocabulary(("the", "bank"))
    ids, targets, weights = bidirectional_lm(SENTENCES, vocabulary)
    assert torch.equal(ids, characters(SENTENCES))
    unknown, begin, end = 2, 3, 4
    assert targets[0].tolist() == [begin, 0, unknown, 1, end] and targets[1].tolist()[:3] == [begin, unknown, end]
    assert weights.tolist() == [[1] * 5, [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]
    assert int(targets.max()) == len(vocabulary) + characters_module.MARKS - 1


# ------------------------------------------------------------------------------------------------- the convolution


def by_sums(layer, word, longest):
    """One word's vector by the sums over each window, padded to ``longest`` as in the original."""
    ids = spelling(word, longest)
    x = [layer.characters.weight[i] for i in ids + [261] * (longest - len(ids))]
    features = []
    for convolution in layer.convolutions:
        wide = convolution.kernel_size[0]
        for weight, bias in zip(convolution.weight, convolution.bias):  # (character_width, wide)
            windows = [sum(weight[:, j] @ x[i + j] for j in range(wide)) + bias for i in range(longest - wide + 1)]
            features.append(torch.stack(windows).max().clamp(min=0))
    x = torch.stack(features)
    for highway in layer.highways:
        gate = 1 / (1 + torch.exp(-(highway.gate.weight @ x + highway.gate.bias)))
        x = gate * (highway.transform.weight @ x + highway.transform.bias).clamp(min=0) + (1 - gate) * x
    return layer.projection.weight @ x + layer.projection.bias


def test_a_vector_equals_the_sums():
    layer = cnn(longest=9)
    words = ["the", "a", "longer"]
    vectors = layer(characters([words], 9))[0, 1:-1]
    right = torch.stack([by_sums(layer, word, 9) for word in words])
    torch.testing.assert_close(vectors, right)
    reversed_words = torch.stack([by_sums(layer, word[::-1], 9) for word in words])
    assert not torch.allclose(vectors, reversed_words, atol=1e-2)
    assert not torch.allclose(vectors[1:], right[:-1], atol=1e-2)


def test_a_highway_by_hand():
    layer = Highway(1).double()
    for p, value in zip(layer.parameters(), (1, 0, 2, 1)):  # of the gate, weight and bias; of the transform
        p.data.fill_(value)
    x, gate = torch.tensor([[3.0]]).double(), 1 / (1 + torch.exp(torch.tensor(-3.0).double()))
    torch.testing.assert_close(layer(x), (gate * 7 + (1 - gate) * 3).view(1, 1))
    assert not torch.allclose(layer(x), (gate * 3 + (1 - gate) * 7).view(1, 1), atol=1e-2)  # gates the wrong way round
    torch.testing.assert_close(layer(-x), ((gate - 1) * 0 - gate * 3).view(1, 1))  # ReLU, and x itself is let through


@given(
    st.lists(st.text("abcdefgh", max_size=30), min_size=1, max_size=6), st.integers(0, 20), st.integers(0, 2**20)
)
@settings(max_examples=40, deadline=None)
def test_a_vector_does_not_depend_on_padding_or_neighbours(words, more, seed):
    layer = cnn(longest=20)
    ids = characters([words], 20)
    C = min(20, ids.shape[2] + more)
    padded = torch.nn.functional.pad(ids, (0, C - ids.shape[2]), value=261)
    together = layer(padded)[0, 1:-1]
    for word, vector in zip(words, together):
        torch.testing.assert_close(vector, layer(characters([[word]], 20))[0, 1], rtol=1e-10, atol=1e-12)


def test_without_a_window_of_padding_it_would_depend_on_it():
    layer = cnn(longest=20)
    layer.widest = 0  # no more padding than the batch happens to have
    alone, beside = layer(characters([["banks"]]))[0, 1], layer(characters([["banks", "extraordinarily"]], 20))[0, 1]
    assert (alone - beside).abs().max() > 1e-3


def test_distinct_words_once_equals_every_word():
    layer = cnn()
    ids = characters([["the", "bank", "of", "the", "bank"], ["of", "the"]], 20)
    seen = []
    layer.projection.register_forward_hook(lambda _m, inputs, _o: seen.append(len(inputs[0])))
    gradients = []
    for call in (layer, layer.plain):
        x = call(ids)
        assert x.shape == (2, 7, 7)
        layer.zero_grad()
        (x * torch.arange(x.numel()).view_as(x).cos()).sum().backward()
        gradients.append([x.detach(), *(p.grad.clone() for p in layer.parameters())])
    for fast, plain in zip(*gradients):
        torch.testing.assert_close(fast, plain)
    assert seen == [6, 14], "the, bank, of, two marks and no word"
    assert not gradients[0][1][0].any(), "where there is no word nothing is learned"


def test_a_word_never_seen_has_a_vector_near_its_stem():
    """Before any training: shared characters are shared features."""
    ids = characters([["banking", "bankify", "zzzuqxv"]], 20)
    x = torch.nn.functional.normalize(cnn(highways=1)(ids)[0, 1:-1], dim=-1)
    assert x[0] @ x[1] > x[0] @ x[2]


# ------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("call, name", [
    (lambda: characters([]), "sentences"),
    (lambda: characters(["the bank"]), r"sentences\[0\]"),
    (lambda: characters("the bank"), "sentences"),
    (lambda: characters([["a", 3]]), r"sentences\[0\]"),
    (lambda: characters([["a"]], longest=0), "longest"),
    (lambda: characters([["a"]], longest=2), "longest"),
    (lambda: bidirectional_lm(SENTENCES, ["the"]), "vocabulary"),
    (lambda: cnn()(characters(SENTENCES)[0]), "characters"),
    (lambda: cnn()(characters(SENTENCES).int()), "characters"),
    (lambda: cnn()(SENTENCES), "characters"),
    (lambda: cnn()(characters(SENTENCES) + 1), "characters"),
    (lambda: cnn()(characters(SENTENCES) - 1), "characters"),
    (lambda: cnn(longest=8)(characters(SENTENCES)), "characters"),
    (lambda: words_in(characters(SENTENCES).flip(1)), "characters"),
    (lambda: words_in(characters(SENTENCES) * 0), "characters"),
])  # fmt: skip
def test_bad_input_names_the_argument(call, name):
    with pytest.raises((ValueError, TypeError), match=f"^{name}: got .*expected"):
        call()
