"""WordPiece, BERT's tokenizer: text to words by fixed rules, a word to pieces by greedy longest match.

A piece that continues a word is written with ``##`` in front: "la ##ern". Encoding is known exactly, from BERT's code;
how Google found its pieces is known only in outline (:mod:`lmcourse.wordpiece_training`). The rules that part text into
words, and where libraries differ on them: :mod:`lmcourse.wordpiece_words`.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from pathlib import Path

from lmcourse import _files, arguments, wordpiece_training
from lmcourse.wordpiece_words import WHITE_SPACE, count_words, words

_CONTINUES = wordpiece_training.CONTINUES
_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_FORMAT, _VERSION = "lmcourse.WordPiece", 1
_CACHED, _CACHED_LENGTH = 200_000, 50  # runs of text without white space, characters in one


def longest_match(word: str, pieces: Iterable[str], longest: int = 100) -> list[str] | None:
    """The word cut greedily: at each place the longest piece that fits. None if at some place none fits.

    ``pieces`` is anything that ``in`` is quick on; ``longest`` bounds their length, so that the time is linear in the
    word's. Source: Devlin et al. 2019's code; Song et al. 2021 give an algorithm without the inner loop.
    """
    found, start = [], 0
    while start < len(word):
        mark = _CONTINUES if start else ""
        ends = range(min(len(word), start + longest), start, -1)
        end = next((end for end in ends if mark + word[start:end] in pieces), None)
        if end is None:
            return None  # no stepping back: another cut of the earlier part might have fitted
        found.append(mark + word[start:end])
        start = end
    return found


@dataclass(frozen=True)
class WordPiece:
    """A vocabulary of pieces and how text is cut into them; a piece's id is its place.

    ``longest_word``: a word of more characters is ``unknown``, as is one that cannot be cut: 100 in Hugging Face's
    libraries, 200 in BERT's code. Special tokens such as ``[MASK]`` are never found in text, where the brackets are
    punctuation; take them from ``ids``. Raises ``ValueError`` for a piece that stands twice or a missing ``unknown``.
    """

    vocabulary: tuple[str, ...]
    lowercase: bool = True
    unknown: str = "[UNK]"
    longest_word: int = 100
    _cache: dict[str, list[int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        arguments.kind("vocabulary", self.vocabulary, tuple, "use tuple(pieces), or WordPiece.from_file(path)")
        arguments.kind("lowercase", self.lowercase, bool, "True for the uncased models")
        arguments.text("unknown", self.unknown)
        arguments.whole("longest_word", self.longest_word)
        _check_pieces("vocabulary", self.vocabulary, first=0)
        if self.unknown not in self.ids:
            raise ValueError(f"unknown: {self.unknown!r} is not among the {len(self):,} pieces; add it to them")

    def __len__(self) -> int:
        return len(self.vocabulary)

    @cached_property
    def ids(self) -> dict[str, int]:
        return {piece: i for i, piece in enumerate(self.vocabulary)}

    @cached_property
    def _longest_piece(self) -> int:
        return max(map(len, self.vocabulary))

    def encode(self, text: str) -> list[int]:
        """The ids of a text's pieces, without ``[CLS]`` and ``[SEP]``."""
        arguments.text("text", text)
        ids: list[int] = []
        for run in WHITE_SPACE.split(text):
            known = self._cache.get(run)
            ids += self._encode_run(run) if known is None else known
        return ids

    def _encode_run(self, run: str) -> list[int]:
        ids = [self.ids[piece] for word in words(run, self.lowercase) for piece in self._cut(word)]
        if len(run) <= _CACHED_LENGTH:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            self._cache[run] = ids
        return ids

    def _cut(self, word: str) -> list[str]:
        found = longest_match(word, self.ids, self._longest_piece) if len(word) <= self.longest_word else None
        return found or [self.unknown]

    def pieces(self, text: str) -> list[str]:
        """The pieces themselves: ``["la", "##ern"]``."""
        return [self.vocabulary[i] for i in self.encode(text)]

    def encode_pair(self, a: str, b: str | None = None) -> tuple[list[int], list[int]]:
        """BERT's input: the ids of ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]``, and each one's segment, 0 or 1.

        Raises ``ValueError`` if the vocabulary has no ``[CLS]`` or ``[SEP]``. Source: Devlin et al. 2019, figure 2.
        """
        arguments.text("a", a)
        for special in ("[CLS]", "[SEP]"):
            if special not in self.ids:
                raise ValueError(f"vocabulary: got no {special}, expected one; give it to train() among the specials")
        first = [self.ids["[CLS]"], *self.encode(a), self.ids["[SEP]"]]
        second = [] if b is None else [*self.encode(b), self.ids["[SEP]"]]
        return first + second, [0] * len(first) + [1] * len(second)

    def decode(self, ids: Iterable[int]) -> str:
        """The words of the pieces, with a space between two.

        What ``wordpiece_words.words`` dropped is lost: white space as it was, control characters, in uncased models
        capitals and accents, and every word that became ``unknown``.

        The ids of a text, decoded and encoded again, are the same unless ``unknown`` is among them. Raises
        ``ValueError`` for an id outside the vocabulary.
        """
        arguments.listed("ids", ids, "a list of ids; use encode(text)")
        text: list[str] = []
        for i in ids.tolist() if hasattr(ids, "tolist") else ids:
            if not isinstance(i, Integral) or isinstance(i, bool) or not 0 <= i < len(self):
                raise ValueError(f"ids: got {i!r}, expected 0 to {len(self) - 1}; use this vocabulary's ids")
            piece = self.vocabulary[i]
            text += [piece[len(_CONTINUES) :]] if text and piece.startswith(_CONTINUES) else [" ", piece]
        return "".join(text[1:])

    # -------------------------------------------------------------------------- where it comes from

    @classmethod
    def train(cls, texts: Iterable[str], size: int, specials: tuple[str, ...] = _SPECIALS,
              criterion: str = "likelihood", lowercase: bool = True) -> "WordPiece":  # fmt: skip
        """A vocabulary of ``size`` pieces from texts, whose order does not matter.

        First come the ``specials``, then every character c of the texts as c and ##c, so that known characters never
        give ``unknown``, then what :func:`lmcourse.wordpiece_training.merges` joins under the ``criterion``. It stays
        smaller where no merge is left that scores above 0. Words of more than 100 characters are left out. Raises
        ``ValueError`` if the characters do not fit. Source: Schuster & Nakajima 2012.
        """
        arguments.whole("size", size)
        counts = {word: n for word, n in count_words(texts, lowercase).items() if len(word) <= cls.longest_word}
        vocabulary = dict.fromkeys((*_checked_specials(specials), *_alphabet(counts)))
        if len(vocabulary) > size:
            raise ValueError(f"size: got {size}, expected {len(vocabulary)} or more, for specials and characters")
        for left, right in wordpiece_training.merges(counts, criterion):
            if len(vocabulary) == size:
                break
            vocabulary[wordpiece_training.joined(left, right)] = None
        return cls(tuple(vocabulary), lowercase)

    @classmethod
    def from_file(cls, path: str | Path, size: int | None = None, lowercase: bool = True) -> "WordPiece":
        """A published ``vocab.txt``, one piece a line: BERT's uncased one has 30,522, the cased one 28,996.

        Raises ``ValueError`` for a file that is not text, for a piece that is empty or stands twice, with its line, and
        for another number of pieces than ``size`` where that is given: a truncated file looks like a shorter one.
        """
        pieces = _read(path).replace("\r\n", "\n").removesuffix("\n").split("\n")
        _check_pieces(str(path), pieces, first=1)
        if size is not None and len(pieces) != size:
            raise ValueError(f"{path}: got {len(pieces):,} pieces, expected {size:,}; copy the file again")
        return cls(tuple(pieces), lowercase)

    def save(self, path: str | Path) -> None:
        """One JSON file, which :meth:`load` reads."""
        content = {"format": _FORMAT, "version": _VERSION, "lowercase": self.lowercase, "unknown": self.unknown,
                   "longest_word": self.longest_word, "vocabulary": self.vocabulary}  # fmt: skip
        _files.write(path, json.dumps(content, ensure_ascii=False, indent=0).encode("utf-8"))

    @classmethod
    def load(cls, path: str | Path) -> "WordPiece":
        """What :meth:`save` wrote. Raises ``ValueError`` if the file is truncated, of another kind or version."""
        try:
            content = json.loads(_read(path))
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{path}: not whole JSON ({error}); save() it again") from None
        if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
            raise ValueError(f"{path}: not a file of WordPiece.save(); for a vocab.txt use WordPiece.from_file()")
        if (version := content.pop("version", None)) != _VERSION:
            raise ValueError(f"{path}: got version {version!r}, expected {_VERSION}; save() it with this lmcourse")
        if content.keys() != {"lowercase", "unknown", "longest_word", "vocabulary"}:
            raise ValueError(f"{path}: got the keys {sorted(content)}, which save() does not write; save() it again")
        try:
            arguments.kind("vocabulary", content["vocabulary"], list, "one of pieces")
            return cls(**content | {"vocabulary": tuple(content["vocabulary"])})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from None


def _check_pieces(name: str, pieces, first: int) -> None:
    places: dict[str, int] = {}
    for i, piece in enumerate(pieces, first):
        if not isinstance(piece, str) or not piece:
            raise ValueError(f"{name}: got {piece!r} at {i}, expected a piece of one character or more")
        if places.setdefault(piece, i) != i:
            raise ValueError(f"{name}: got {piece!r} at {places[piece]} and at {i}, expected each piece once")


def _alphabet(counts: Iterable[str]) -> list[str]:
    letters = sorted({c for word in counts for c in word})
    return letters + [_CONTINUES + c for c in letters]


def _checked_specials(specials: tuple[str, ...]) -> tuple[str, ...]:
    arguments.kind("specials", specials, tuple, 'use ("[UNK]",)')
    for special in specials:
        arguments.text("specials", special)
        if special.startswith(_CONTINUES) or len(words(special, lowercase=False)) < 2:
            raise ValueError(f"specials: got {special!r}, which text could hold as a word; write it in brackets: [PAD]")
    _check_pieces("specials", specials, first=0)
    if "[UNK]" not in specials:
        raise ValueError(f"specials: got {specials}, expected [UNK] among them, for words that cannot be cut")
    return specials


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}); copy the file again") from None
