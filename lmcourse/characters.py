"""Words as their characters: ids of bytes with marks, and the convolution that makes a vector of any word.

Kim et al. 2016; the ids and the order of the layers are those of ELMo's original code. No word is unknown, since there
are 256 bytes. B sentences, T words and sentence marks, C characters, D width, N distinct words.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmcourse import arguments
from lmcourse.vocabulary import Vocabulary

# 0 where there is no word, a byte of UTF-8 plus 1, and five marks.
SENTENCE_BEGIN, SENTENCE_END, WORD_BEGIN, WORD_END, PADDING = range(257, 262)
CHARACTERS = 262
UNKNOWN, BEGIN, END = range(3)  # what ELMo's softmax knows beside the words of its vocabulary: its last ids
MARKS = 3


def spelling(word: str, longest: int = 50) -> list[int]:
    """The ids of a word's characters: the begin mark, its bytes in UTF-8 plus 1, cut to fit, the end mark."""
    return [WORD_BEGIN, *(byte + 1 for byte in word.encode("utf-8", "ignore")[: longest - 2]), WORD_END]


def characters(sentences: Iterable[Sequence[str]], longest: int = 50) -> Tensor:
    """(B, T, C) ids of sentences, each a list of words: word i stands at place i + 1, after the begin mark.

    T is the longest sentence's with its two marks, C the longest word's; where there is no word, all C ids are 0.
    """
    if not isinstance(longest, int) or longest < 3:
        raise ValueError(f"longest: got {longest!r}, expected 3 or more: two marks and a character")
    begin, end = ([WORD_BEGIN, mark, WORD_END] for mark in (SENTENCE_BEGIN, SENTENCE_END))
    sentences = arguments.lists_of_words("sentences", sentences)
    rows = [[begin, *(spelling(word, longest) for word in sentence), end] for sentence in sentences]
    if not rows:
        raise ValueError("sentences: got none, expected one or more; use [data.words(text)] for one")
    T, C = max(map(len, rows)), max(len(word) for row in rows for word in row)
    nothing = [0] * C
    table = [[w + [PADDING] * (C - len(w)) for w in row] + [nothing] * (T - len(row)) for row in rows]
    return torch.tensor(table, dtype=torch.int64)


def bidirectional_lm(
    sentences: Iterable[Sequence[str]], vocabulary: Vocabulary, longest: int = 50
) -> tuple[Tensor, Tensor, Tensor]:
    """What ``ELMo.loss`` asks for: characters (B, T, C); the word at each place, and its weight, (B, T).

    Ids of words are the vocabulary's; then come those of the unknown word and of a sentence's begin and end, so the
    model's V is ``len(vocabulary) + MARKS``. Weights are 0 where there is no word.
    """
    arguments.kind("vocabulary", vocabulary, Vocabulary, "use Vocabulary.from_sentences(sentences)")
    sentences = list(arguments.lists_of_words("sentences", sentences))
    ids, n, index = characters(sentences, longest), len(vocabulary), vocabulary.index
    targets = torch.zeros(ids.shape[:2], dtype=torch.int64)
    for row, sentence in zip(targets, sentences):
        known = [index.get(word, n + UNKNOWN) for word in sentence]
        row[: len(known) + 2] = torch.tensor([n + BEGIN, *known, n + END])
    return ids, targets, (ids[..., 0] != 0).float()


def words_in(characters: Tensor) -> Tensor:
    """Booleans (B, T): where a word or a mark stands. Each row begins with one, and padding is on the right."""
    real = characters[..., 0] != 0
    if arguments.can_look(real) and not bool((real[:, 0] & (real[:, 1:] <= real[:, :-1]).all(1)).all()):
        raise ValueError("characters: got a row without words or with padding before words, expected it on the right")
    return real


class Highway(nn.Module):
    """g ⊙ ReLU(W x + b) + (1 - g) ⊙ x with g = σ(W' x + b'): Srivastava et al. 2015, equation 3."""

    def __init__(self, width: int):
        super().__init__()
        self.gate, self.transform = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


class CharacterCNN(nn.Module):
    """Ids of characters (B, T, C) → vectors of words (B, T, D): Kim et al. 2016, with ReLU for tanh.

    Padding is a character like others, with a vector that is learned: the original pads each word to 50 characters and
    masks none. Windows wholly in padding all give the same number, so one of them is as good as forty. Here words are
    padded up to one such window past the longest of the batch, and their vectors do not depend on how far that is.
    """

    def __init__(
        self,
        filters: Sequence[tuple[int, int]],
        width: int,
        character_width: int = 16,
        highways: int = 1,
        longest: int = 50,
    ):
        """``filters``: pairs (characters wide, how many); ``width``: D; ``longest``: characters of a word."""
        super().__init__()
        self.longest, self.widest, n = longest, max(wide for wide, _ in filters), sum(n for _, n in filters)
        self.characters = nn.Embedding(CHARACTERS, character_width, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(character_width, n, wide) for wide, n in filters)
        self.highways = nn.Sequential(*(Highway(n) for _ in range(highways)))
        self.projection = nn.Linear(n, width)

    def forward(self, ids: Tensor) -> Tensor:
        """As ``plain``, but each distinct word of the batch is computed once."""
        self.check(ids)
        if not arguments.can_look(ids):  # there, a shape that depends on the data is slow or not possible
            return self.plain(ids)
        types, place = torch.unique(ids.flatten(0, 1), dim=0, return_inverse=True)  # (N, C), (B·T,)
        return F.embedding(place, self.words(types)).unflatten(0, ids.shape[:2])

    def plain(self, ids: Tensor) -> Tensor:
        return self.words(ids.flatten(0, 1)).unflatten(0, ids.shape[:2])

    def words(self, ids: Tensor) -> Tensor:
        """(N, C) → (N, D), each row on its own."""
        C = ids.shape[1]
        ids = F.pad(ids, (0, min(C + self.widest, self.longest) - C), value=PADDING)
        x = self.characters(ids).mT  # (N, character_width, C)
        x = torch.cat([convolution(x).amax(-1) for convolution in self.convolutions], -1)
        return self.projection(self.highways(torch.relu(x)))

    def check(self, ids: Tensor) -> None:
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.ndim != 3 or not ids.numel():
            came = arguments.came(ids)
            raise ValueError(f"characters: got {came}, expected int64 ids (B, T, C); use characters(sentences)")
        if ids.shape[-1] > self.longest:
            raise ValueError(f"characters: got {ids.shape[-1]} a word, expected at most {self.longest}; set longest")
        if arguments.can_look(ids) and (int(ids.min()) < 0 or int(ids.max()) >= CHARACTERS):
            raise ValueError(f"characters: got ids from {int(ids.min())} to {int(ids.max())}, expected 0 to 261")
