"""Byte-pair encoding: words into pieces that were learned by merging the most frequent pairs.

:class:`BPE` works on characters, with an end-of-word marker (Sennrich et al. 2016, section 3.2); :class:`ByteBPE` on
bytes (Radford et al. 2019, section 2.2), so that no text is unknown to it. How merges are learned and applied:
:mod:`lmcourse.merges`.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import regex

from lmcourse import _tokenizing
from lmcourse._tokenizing import repeated
from lmcourse.merges import apply_merges, learn_merges, sorted_symbols

__all__ = ["BYTES", "BPE", "END", "UNKNOWN", "ByteBPE"]

END, UNKNOWN = "</w>", "[UNK]"
_CACHED_WORDS, _CACHED_LENGTH = 1 << 17, 64  # so that an instance remembers some 50 MB at most

# What Unicode calls White_Space; Python's own \s has U+001C to U+001F in addition, which the reference has not.
_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_WORD = re.compile(f"[^{_SPACE}]+")
_CHUNK = re.compile(f"[{_SPACE}]*[^{_SPACE}]+|[{_SPACE}]+")
# GPT-2's words: contractions in lower case, letters, numbers, the rest, each with a space before it, white space.
_BYTE_WORD = regex.compile(r"'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def _byte_characters() -> tuple[str, ...]:
    """GPT-2's character for each of the 256 bytes: itself if it can be seen in Latin-1, else U+0100 and following."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return tuple(chr(byte if byte in seen else 256 + unseen.index(byte)) for byte in range(256))


BYTES = _byte_characters()
_BYTE_OF = {ord(character): byte for byte, character in enumerate(BYTES)}


@dataclass(frozen=True, repr=False)
class BPE:
    """Words at white space, each closed by ``</w>``; a character that was not in training is one ``[UNK]``.

    ``merges``: pairs in the order in which they were learned. ``specials`` are in ``vocabulary``, but no text gives
    them (except ``[UNK]``). ``decode(encode(text))`` is the text if its characters are known, but for white space:
    one space stands between words, none at the ends. At worst a piece is a character, or ``</w>``.
    """

    vocabulary: tuple[str, ...]  # a piece's id is its place
    merges: tuple[tuple[str, str], ...]
    specials: tuple[str, ...] = (UNKNOWN,)

    _required: ClassVar[tuple[str, ...]] = (END, UNKNOWN)

    def __post_init__(self):
        for name in ("vocabulary", "merges", "specials"):
            if not isinstance(value := getattr(self, name), tuple):
                raise TypeError(f"{name}: got {type(value).__name__}, expected a tuple; use train, load or tuple(…)")
        if not all(isinstance(piece, str) for piece in self.vocabulary):
            raise TypeError("vocabulary: not every piece is a str")
        if len(self.ids) < len(self.vocabulary):
            raise ValueError(f"vocabulary: {repeated(self.vocabulary)!r} stands in it twice, expected once")
        _tokenizing.specials(self.specials, (END,))
        if UNKNOWN in self._required and UNKNOWN not in self.specials:
            raise ValueError(f"specials: got {self.specials}, expected {UNKNOWN!r} among them; add it")
        if missing := [piece for piece in dict.fromkeys((*self._required, *self.specials)) if piece not in self.ids]:
            raise ValueError(f"vocabulary: got none of {missing[:3]}, expected {len(missing)} such pieces in addition")
        self._check_merges()

    def _check_merges(self) -> None:
        texts = self.ids.keys() - set(self.specials)
        for i, merge in enumerate(self.merges):
            if not (isinstance(merge, tuple) and len(merge) == 2 and all(isinstance(part, str) for part in merge)):
                raise TypeError(f"merges[{i}]: got {merge!r}, expected a pair of pieces")
            if unknown := {*merge, "".join(merge)} - texts:
                raise ValueError(f"merges[{i}]: {min(unknown)!r} of {merge} is special or not in the vocabulary")
        if len(self._ranks) < len(self.merges):
            raise ValueError(f"merges: {repeated(self.merges)} stands in it twice, expected once")

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """The id of every piece."""
        return {piece: i for i, piece in enumerate(self.vocabulary)}

    @functools.cached_property
    def _ranks(self) -> dict[tuple[str, str], int]:
        return {merge: rank for rank, merge in enumerate(self.merges)}

    @functools.cached_property
    def _cache(self) -> dict[str, tuple[str, ...]]:
        return {}

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} pieces, {len(self.merges):,} merges, specials {self.specials})"

    # ------------------------------------------------------------------------------ training

    @classmethod
    def train(cls, texts: Iterable[str], size: int, specials: Sequence[str] = (UNKNOWN,)) -> "BPE":
        """Learns from documents until there are ``size`` pieces, specials and alphabet included, or no pair is left.

        Ids: ``specials`` (with ``[UNK]``, at their end if it is not among them), the alphabet by code point and
        ``</w>``, then what was learned, in order. Ties: :func:`lmcourse.merges.learn_merges_plainly`. The order of
        the texts does not matter. Raises ``ValueError`` if they are empty, hold ``</w>``, or ``size`` is too small.
        """
        specials = _tokenizing.specials(specials, (END,))
        specials += () if UNKNOWN in specials else (UNKNOWN,)
        counts = Counter()
        for i, text in enumerate(_tokenizing.documents(texts)):
            if END in text:
                raise ValueError(f"texts[{i}]: has {END!r}, which marks the end of a word; take it out")
            counts.update(_WORD.findall(text))
        words = {(*word, END): n for word, n in counts.items()}
        return cls._learn(words, sorted_symbols(words), size, specials)

    @classmethod
    def _learn(cls, words: dict, alphabet: Sequence[str], size: int, specials: tuple[str, ...]) -> "BPE":
        if not words:
            raise ValueError("texts: got no word, expected text; give at least one document that is not empty")
        _tokenizing.size(size, len(specials), len(alphabet))
        new = size - len(specials) - len(alphabet)
        merges = tuple((m.left, m.right) for m in learn_merges(words, new, frozenset(specials)))
        learned = dict.fromkeys("".join(merge) for merge in merges)
        return cls((*specials, *alphabet, *learned), merges, specials)

    # ------------------------------------------------------------------------------ encoding

    def pieces(self, text: str) -> list[str]:
        """The pieces of a text, in order. ``ValueError`` for a lone surrogate, which is no character."""
        _tokenizing.check_text("text", text)
        return [piece for word in self._words(text) for piece in self._pieces_of(word)]

    def encode(self, text: str) -> list[int]:
        """The ids of :meth:`pieces`."""
        return list(map(self.ids.__getitem__, self.pieces(text)))

    def _pieces_of(self, word: str) -> tuple[str, ...]:
        found = self._cache.get(word)
        if found is None:
            found = tuple(apply_merges(self._symbols(word), self._ranks))
            if len(self._cache) >= _CACHED_WORDS:
                self._cache.clear()
            if len(word) <= _CACHED_LENGTH:
                self._cache[word] = found
        return found

    def _words(self, text: str) -> list[str]:
        return _WORD.findall(text)

    def _symbols(self, word: str) -> Sequence[str]:
        return [*(c if c in self.ids else UNKNOWN for c in word), END]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, a list or a (T,) tensor; a special's text is its name. ``ValueError`` for an unknown id."""
        return self._text([self.vocabulary[x] for x in _tokenizing.known_ids(ids, len(self))])

    def _text(self, pieces: list[str]) -> str:
        return "".join(p.removesuffix(END) + " " if p.endswith(END) else p for p in pieces).removesuffix(" ")

    # --------------------------------------------------------------------------------- files

    def save(self, path: str | Path) -> None:
        """Writes one JSON file, whole or not at all."""
        parts = {"specials": self.specials, "vocabulary": self.vocabulary, "merges": self.merges}
        _tokenizing.write(path, type(self).__name__, parts)

    @classmethod
    def load(cls, path: str | Path) -> "BPE":
        """Reads what :meth:`save` wrote. ``ValueError`` for a truncated file, another kind or another version."""
        parts = _tokenizing.read(path, cls.__name__, ("vocabulary", "merges", "specials"))
        vocabulary, merges, specials = parts
        try:
            return cls(tuple(vocabulary), tuple(map(tuple, merges)), tuple(specials))
        except (TypeError, ValueError) as error:
            raise ValueError(f"path: {path} does not fit together, save it again; {error}") from None


@dataclass(frozen=True, repr=False)
class ByteBPE(BPE):
    """GPT-2's: words by its pattern, their UTF-8 bytes as symbols, so that ``decode(encode(text)) == text`` always.

    A byte is written as a character (``BYTES``; a space is "Ġ"). White space is Unicode's, as in the
    ``tokenizers`` library. Of bytes that are no UTF-8, which ids can spell, ``decode`` makes U+FFFD.
    """

    specials: tuple[str, ...] = ()

    _required: ClassVar[tuple[str, ...]] = BYTES

    @classmethod
    def train(cls, texts: Iterable[str], size: int, specials: Sequence[str] = ()) -> "ByteBPE":
        """Learns from documents until there are ``size`` pieces, specials and 256 bytes included, or no pair is left.

        Ids: ``specials``, the bytes by their character's code point, then what was learned, in order. Otherwise as
        :meth:`BPE.train`.
        """
        chunks, counts = Counter(), Counter()
        for text in _tokenizing.documents(texts):
            chunks.update(_CHUNK.findall(text))
        for chunk, n in chunks.items():  # a word never goes on behind the end of a chunk
            one_word = chunk[0] == " " and chunk[1:].isalpha()
            for word in (chunk,) if one_word else _BYTE_WORD.findall(chunk):
                counts[word] += n
        words = {_spelled(word): n for word, n in counts.items()}
        return cls._learn(words, sorted(BYTES), size, _tokenizing.specials(specials))

    @classmethod
    def from_files(
        cls, encoder_json: str | Path, vocab_bpe: str | Path, specials: Sequence[str] = ("<|endoftext|>",)
    ) -> "ByteBPE":
        """GPT-2's published files: ids, and a merge a line. ``ValueError`` if a piece is no byte, merge or special."""
        ids = _tokenizing.read_json(encoder_json)
        if not isinstance(ids, Mapping) or {*ids.values()} != {*range(len(ids))}:
            raise ValueError(f"encoder_json: {encoder_json} is not a mapping from pieces to the ids 0, 1, 2 and so on")
        lines = Path(vocab_bpe).read_text(encoding="utf-8").split("\n")
        lines = lines[lines[0].startswith("#version") :]
        merges = tuple(tuple(line.split(" ")) for line in lines if line)
        if wrong := [merge for merge in merges if len(merge) != 2]:
            raise ValueError(f"vocab_bpe: {vocab_bpe} has the line {' '.join(wrong[0])!r}, expected two pieces a line")
        made = {*BYTES, *("".join(merge) for merge in merges)}
        unmade = sorted(ids.keys() - made, key=ids.get)
        if lost := [piece for piece in unmade if piece not in _tokenizing.specials(specials)]:
            raise ValueError(f"vocab_bpe: {vocab_bpe} makes no {lost[0]!r}; download it again, or name it in specials")
        return cls(tuple(sorted(ids, key=ids.get)), merges, tuple(unmade))

    def _words(self, text: str) -> list[str]:
        return _BYTE_WORD.findall(text)

    def _symbols(self, word: str) -> str:
        return _spelled(word)

    def _text(self, pieces: list[str]) -> str:
        spelled = (_spelled(piece) if piece in self.specials else piece for piece in pieces)
        return "".join(spelled).translate(_BYTE_OF).encode("latin-1").decode("utf-8", errors="replace")


def _spelled(text: str) -> str:
    """The UTF-8 bytes of a text, each as its character."""
    if text.isascii() and text.isprintable():
        return text.replace(" ", "Ġ")
    return "".join(map(BYTES.__getitem__, text.encode()))
