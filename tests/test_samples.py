"""Text in thirds, and tokenizers that are cut short."""

import pytest
from lmcourse import data, samples
from lmcourse.bpe import BPE, ByteBPE


@pytest.mark.parametrize("corpus, parts", [("novels", 95), ("addresses", 63)])
def test_thirds_are_disjoint_and_hold_all_of_the_training_text(corpus, parts):
    thirds = samples.thirds(corpus)
    assert len(thirds) == 3 and len(thirds[0]) == parts
    sizes = [sum(map(len, third)) for third in thirds]
    assert max(sizes) < 1.3 * min(sizes)
    words = sum(len(text.split()) for third in thirds for text in third)
    assert words == sum(len(d.text.split()) for d in data.documents(corpus, "train"))
    assert len({text for third in thirds for text in third}) == sum(map(len, thirds))


def test_thirds_of_what_is_no_corpus():
    with pytest.raises(ValueError, match="corpus: got 'plays'"):
        samples.thirds("plays")
    with pytest.raises(ValueError, match="paragraphs: got 0"):
        samples.thirds("novels", 0)


@pytest.mark.parametrize("kind", [BPE, ByteBPE])
def test_a_tokenizer_cut_short_is_the_one_trained_for_that_size(kind):
    texts = [d.text[:2000] for corpus in data.CORPORA for d in data.documents(corpus)]
    trained = kind.train(texts, 1000)
    assert samples.shorter(trained, 600) == kind.train(texts, 600)
    assert samples.shorter(trained, 1000) == trained
    for size in (1001, 0, 600.0, True):
        with pytest.raises(ValueError, match="size: got .*, expected .* to 1000"):
            samples.shorter(trained, size)
    with pytest.raises(TypeError, match="tokenizer: got list, expected a BPE"):
        samples.shorter([], 600)
