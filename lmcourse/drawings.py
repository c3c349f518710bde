"""Drawings of how words are cut: pieces as boxes, and the lattice through which Viterbi looks for the best cut."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from lmcourse import arguments, merges, plots
from lmcourse.plots import COLOURS, GREY

__all__ = ["boxes", "lattice", "merge_step"]

_LETTER, _GAP = 0.32, 0.22  # widths, in the units of the axes


def boxes(ax: Axes, words: Mapping[tuple[str, ...], int]) -> None:
    """Each word in a row of its own: how often it occurs, then its pieces as boxes."""
    arguments.kind("words", words, Mapping, 'use {("l", "o", "w"): 5}')
    ends = []
    for row, (pieces, count) in enumerate(words.items()):
        left = 0.0
        ax.text(-0.3, 0.25 - row, f"{count} ×", ha="right", va="center")
        for piece in pieces:
            width = _LETTER * len(piece)
            box = FancyBboxPatch((left, -row), width, 0.5, boxstyle="round,pad=0.04", fill=False)
            box.set_edgecolor(COLOURS["blue"])
            ax.add_patch(box)
            ax.text(left + width / 2, 0.25 - row, piece, ha="center", va="center")
            left += width + _GAP
        ends.append(left)
    ax.set(xlim=(-1.0, max(6.0, *ends)), ylim=(0.2 - len(words), 0.8))
    ax.axis("off")


def merge_step(words: Mapping[tuple[str, ...], int], chosen: tuple[str, str] | None, most: int) -> plots.Picture:
    """Words under way in BPE and their most frequent pairs, up to ``most`` times; the next merge in colour."""
    pairs = merges.pair_counts(words)
    top = sorted(pairs, key=lambda pair: (-pairs[pair], pair != chosen, pair))[:6]
    fig, (left, right) = plots.figure(1, 2, width=7.4, height=2.6)
    boxes(left, words)
    bars = right.barh(range(len(top)), [pairs[pair] for pair in top], color=GREY)
    if chosen:
        bars[top.index(chosen)].set_color(COLOURS["vermilion"])
    right.set_yticks(range(len(top)), ["·".join(pair) for pair in top])
    right.set(xlim=(0, most + 1), xlabel="how often the pair stands")
    right.invert_yaxis()
    count = sum(len(word) * n for word, n in words.items())
    following = f"next merge {'·'.join(chosen)}" if chosen else "no next merge"
    left.set_title(f"{count} symbols; {following}", fontsize=10)
    alt = f"{count} symbols: {', '.join(' '.join(word) for word in words)}; {following}."
    return plots.show(fig, alt, {"pair counts": [pairs[pair] for pair in top] or [0], "symbols": [count]})


def lattice(ax: Axes, word: str, costs: Mapping[str, float], best: Sequence[str]) -> None:
    """Places between the letters of ``word`` and an arrow for every piece with its cost; ``best``: the cut in colour.

    Pieces of one letter go straight, longer ones above, and below where two longer ones would cross above.
    """
    arguments.text("word", word)
    taken: list[tuple[int, int]] = []
    starts = {sum(map(len, best[:i])): piece for i, piece in enumerate(best)}
    for length in range(1, len(word) + 1):
        for i in range(len(word) - length + 1):
            piece, j = word[i : i + length], i + length
            if piece not in costs:
                continue
            crossing = any(a < j and i < b for a, b in taken)
            side = 0 if length == 1 else -1 if crossing else 1
            taken += [(i, j)] if side == 1 else []
            _arrow(ax, i, j, side, f"{piece} {costs[piece]:g}", starts.get(i) == piece)
    for place in range(len(word) + 1):
        ax.plot(place, 0, "o", color=GREY, markersize=5)
        ax.text(place, -0.16, str(place), ha="center", va="top", color=GREY, fontsize=8)
    ax.set(xlim=(-0.3, len(word) + 0.3), ylim=(-1.4, 1.4))
    ax.axis("off")


def _arrow(ax: Axes, i: int, j: int, side: int, label: str, chosen: bool) -> None:
    colour, width = (COLOURS["vermilion"], 2.0) if chosen else (GREY, 1.0)
    shape = {"arrowstyle": "->", "color": colour, "lw": width, "connectionstyle": f"arc3,rad={-0.5 * side}"}
    ax.annotate("", (j - 0.05, 0), (i + 0.05, 0), arrowprops=shape)
    height = (0.08, 0.4, -0.29)[side] * max(1, abs(side) * (j - i))  # above the line, above the bow, within the bow
    ax.text((i + j) / 2, height, label, ha="center", va="bottom", color=colour)
