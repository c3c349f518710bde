"""BERT's words: text is cleaned, parted at white space and parted again at punctuation, by fixed rules.

Two codes by which the rules are known differ a little. Here, as in Hugging Face's ``tokenizers``, private use
characters are dropped (BERT's code keeps them) and a capital sigma becomes σ also at a word's end (BERT's code: ς). As
in BERT's code, the ideographs U+2B820 to U+2B91F stand alone (the library's range starts at U+2B920).

Categories are those of Python's ``unicodedata``, Unicode 14 in Python 3.11. The library's are of Unicode 8: about 500
accents, format characters and punctuation marks that came later are letters to it, and five signs have the category of
that time (U+166D, U+1734, U+1885, U+1886, U+111C9). Its lower case is newer: of 55 characters that are unassigned here
it knows that they are capitals.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from lmcourse import arguments

_CJK = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
        (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F))  # fmt: skip
_ASCII_SYMBOLS = frozenset("$+<=>^`|~")  # ASCII that Unicode calls symbols and BERT calls punctuation
# White space to BERT. Python's \s also holds control characters, which BERT drops: "a\x1cb" is one word.
WHITE_SPACE = re.compile(r"[^\S\x0b\x0c\x1c-\x1f\x85]+")


def words(text: str, lowercase: bool = True) -> list[str]:
    """BERT's normaliser and pre-tokeniser: the words and punctuation marks of a text, in order.

    Control characters are dropped, white space parts, an ideograph stands alone; with ``lowercase``, as for the uncased
    models, capitals and accents go too; every punctuation mark stands alone. Raises ``TypeError`` if ``text`` is not a
    str. Source: Devlin et al. 2019 and its published code, ``tokenization.py``.
    """
    arguments.text("text", text)
    text = "".join(map(_cleaned, text))
    if lowercase:
        text = text.replace("Σ", "σ").lower()  # str.lower alone would look at a sigma's neighbours
        text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    return [word for run in text.split() for word in _parted(run)]


def count_words(texts: Iterable[str], lowercase: bool = True) -> Counter:
    """How often each word occurs in the texts together. Raises ``TypeError`` for a text that is not a str."""
    arguments.listed("texts", texts, "a list of str; use [d.text for d in data.documents('novels')]")
    runs, counts = Counter(), Counter()
    for i, text in enumerate(texts):
        arguments.text(f"texts[{i}]", text)
        runs.update(WHITE_SPACE.split(text))
    for run, times in runs.items():  # each different run once
        for word in words(run, lowercase):
            counts[word] += times
    return counts


def _cleaned(c: str) -> str:
    category = unicodedata.category(c)
    if c in "\t\n\r" or category[0] == "Z":
        return " "
    if c == "\ufffd" or category in ("Cc", "Cf", "Co", "Cs"):  # not Cn: the unassigned stay
        return ""
    return f" {c} " if c >= "\u3400" and any(first <= ord(c) <= last for first, last in _CJK) else c


def _parted(run: str) -> list[str]:
    """A run without white space, parted before and after each punctuation mark."""
    parts, start = [], 0
    for i, c in enumerate(run):
        if c in _ASCII_SYMBOLS or unicodedata.category(c)[0] == "P":
            parts += [run[start:i], c]
            start = i + 1
    return [part for part in (*parts, run[start:]) if part]
