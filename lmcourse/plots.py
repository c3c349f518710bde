"""Figures that everyone can read: one ink for light and dark pages, colours for colour-blind eyes, a text
alternative, and the numbers behind the picture.

``show(fig, alt, data)`` gives a :class:`Picture`; as the last line of a cell it is displayed. Its plain text is
the alternative and the rounded data, so that whoever compares a notebook's text compares its figures too.
"""

import html
import io
import math
import re
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

from lmcourse import arguments

# Okabe & Ito (2008), the four that keep a contrast of 3:1 or more against both a white page and a dark one
# (WCAG 2.2, 1.4.11); the purple is darkened a little for that. The fifth is the ink of the page itself.
COLOURS = {"blue": "#0072B2", "vermilion": "#D55E00", "green": "#009E73", "purple": "#C06C9B", "ink": "#000000"}
GREY = "#808080"  # for what stands behind: grids, reference lines, points that are not the subject

_STYLE = {
    "axes.prop_cycle": matplotlib.cycler(color=list(COLOURS.values())),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GREY,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that a layout is the same on every machine
    "font.size": 10.0,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",  # text stays text: smaller, sharp, in the ink of the page
    "svg.hashsalt": "lmcourse",  # the same figure gives the same bytes
    "image.cmap": "cividis",
}
_LISTED = 32  # a series of up to so many numbers is written in full


@contextmanager
def style():
    """The house style, for the ``with`` block in which a figure is made."""
    with matplotlib.rc_context(_STYLE):
        yield


def figure(rows: int = 1, columns: int = 1, width: float = 6.4, height: float = 3.6):
    """``(fig, axes)`` in the house style; ``width`` and ``height`` in inches.

    ``axes`` is one Axes, or an array of them, as ``plt.subplots`` gives it.
    """
    for name, count in (("rows", rows), ("columns", columns)):
        arguments.whole(name, count)
    for name, inches in (("width", width), ("height", height)):
        arguments.positive(name, inches)
    with style():
        return plt.subplots(rows, columns, figsize=(width, height))


@dataclass(frozen=True)
class Picture:
    """A drawn figure: ``svg`` (one ``<svg>`` element), ``alt`` (its text alternative), ``summary`` (its data)."""

    svg: str
    alt: str
    summary: str

    @property
    def markup(self) -> str:
        """One HTML ``<figure>``; the picture carries the text alternative as its name."""
        named = self.svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(self.alt)}"', 1)
        return f'<figure class="lmcourse-figure" style="margin:0">{named}</figure>'

    def __str__(self) -> str:
        return f"Figure: {self.alt}\n{self.summary}"

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/html": self.markup, "text/plain": str(self)}


def show(fig: Figure, alt: str, data: Mapping[str, object]) -> Picture:
    """The figure with its text alternative and the data it shows, to be the last line of a cell.

    ``alt`` says what the figure shows, in a sentence; ``data`` names each series (numbers, an array or a tensor).
    The figure is closed. Black becomes the ink of the page, which is light on a dark page.
    """
    if not isinstance(fig, Figure):
        raise TypeError(f"fig: got {type(fig).__name__}, expected a matplotlib Figure; plots.figure() makes one")
    try:
        summary = "\n".join(f"  {name}: {_series(name, values)}" for name, values in _checked(alt, data).items())
        svg = _drawn(fig)
    finally:
        plt.close(fig)
    return Picture(compact(svg), " ".join(alt.split()), summary)


def _drawn(fig: Figure) -> str:
    legends = [*fig.legends, *(axes.get_legend() for axes in fig.axes if axes.get_legend())]
    for legend in legends:
        legend.set_frame_on(False)  # its white box would hide the light ink of a dark page
    with style():
        buffer = io.StringIO()
        fig.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _checked(alt, data) -> Mapping:
    if not isinstance(alt, str):
        raise TypeError(f"alt: got {type(alt).__name__}, expected str, a sentence that says what the figure shows")
    if len(alt.split()) < 3:
        raise ValueError(f"alt: got {alt!r}, expected a sentence that says what the figure shows")
    if not isinstance(data, Mapping):
        raise TypeError(f"data: got {type(data).__name__}, expected a mapping from the name of a series to numbers")
    if not data:
        raise ValueError("data: got an empty mapping, expected the numbers that the figure shows")
    return data


# ------------------------------------------------------------------------------------------ data


def _numbers(name: str, values) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = _narrow(values.detach().cpu()) if values.is_floating_point() else values.detach().cpu()
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # rows of several lengths; tensors within a list
        raise ValueError(
            f"data[{name!r}]: got a {type(values).__name__} that makes no array, expected numbers; "
            f"give rows of one length, and tensors as torch.stack(tensors) ({error})"
        ) from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"data[{name!r}]: got {array.dtype} values, expected numbers")
    if not array.size:
        raise ValueError(f"data[{name!r}]: got no number, expected what the figure shows")
    return array


def _narrow(values: torch.Tensor) -> torch.Tensor:
    """The values in float32, or in float64 where that alone can hold the largest."""
    finite = values[torch.isfinite(values)].abs().double()
    largest, finfo = float(finite.max()) if finite.numel() else 0.0, torch.finfo(torch.float32)
    return values.float() if largest == 0 or finfo.tiny <= largest <= finfo.max else values.double()


def _mean(flat: np.ndarray) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        mean = flat.mean()
    return mean if np.isfinite(mean) or not np.isfinite(flat).all() else (flat / flat.size).sum()


def _series(name: str, values) -> str:
    """The numbers at four significant digits of the largest: all of them, or a summary and 16 evenly spaced."""
    array = _numbers(name, values)
    flat = array.ravel().astype(np.float64)
    shape = f"[{'×'.join(map(str, array.shape))}] " if array.ndim > 1 else ""
    if flat.size <= _LISTED:
        return shape + _rounded(flat, array.dtype.kind)
    ends = _rounded(np.array([flat.min(), _mean(flat), flat.max()])).split()
    sampled = _rounded(flat[np.linspace(0, flat.size - 1, 16).round().astype(int)], array.dtype.kind)
    head = f"{flat.size} numbers, least {ends[0]}, mean {ends[1]}, greatest {ends[2]}; "
    return shape + head + f"every {flat.size / 15:.1f}th: {sampled}"


def _rounded(flat: np.ndarray, kind: str = "f") -> str:
    finite = np.abs(flat[np.isfinite(flat)])
    largest = finite.max() if finite.size else 0.0
    digits = 0 if kind in "biu" or largest == 0 else 3 - math.floor(math.log10(largest))
    if digits > 9 or digits < -30:
        return " ".join(f"{x:.3e}" for x in flat)
    return " ".join(f"{round(x, digits) + 0.0:.{max(digits, 0)}f}" for x in flat)


# ------------------------------------------------------------------------------------------- svg

_FAMILY = re.compile(r"(?:'DejaVu Sans'|sans-serif)(?:, (?:'[^']+'|sans-serif))*")
_TAG = re.compile(r"<[^>]+>")
_COORDINATE = re.compile(r"-?\d+\.\d{2,}")


def compact(svg: str) -> str:
    """A matplotlib SVG without header, comments, unused ids and needless digits, in the ink of the page.

    Coordinates are in points of 1/72 inch; a tenth of a point is kept.
    """
    svg = svg[svg.index("<svg") :]
    # matplotlib's own rules would reach every element of the page; the root carries them instead
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.S)
    used = set(re.findall(r"""(?:href="#|url\(#)([^")]+)""", "".join(_TAG.findall(svg))))
    svg = _TAG.sub(lambda tag: _compact_tag(tag.group(0), used), svg)  # and what is written between tags stays
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()
    root = (
        f'<svg width="{width}pt" viewBox="0 0 {width} {height}" fill="currentColor" stroke-linejoin="round" '
        'style="max-width:100%;height:auto;font-family:sans-serif" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'xmlns="http://www.w3.org/2000/svg">'
    )
    svg = re.sub(r"<svg[^>]*>", root, svg, count=1)
    return re.sub(r">\s+<", "><", re.sub(r"\s*\n\s*", " ", svg)).replace("<defs/>", "").strip()


def _compact_tag(tag: str, used: set[str]) -> str:
    tag = re.sub(r' id="([^"]*)"', lambda m: m.group(0) if m.group(1) in used else "", tag)
    tag = re.sub(r' (?:d|x|y|points|transform|viewBox)="[^"]*"', _shortened, tag)
    tag = _FAMILY.sub("sans-serif", tag.replace("#000000", "currentColor"))
    return re.sub(r' transform="rotate\(-0 [^"]*"', "", tag.replace("font-family: sans-serif; ", ""))


def _shortened(match: re.Match) -> str:
    # Matrices hold factors as well as coordinates, so those keep their digits.
    if "matrix" in match.group(0) or "scale" in match.group(0):
        return match.group(0)
    return _COORDINATE.sub(lambda m: f"{float(m.group(0)):.1f}".removesuffix(".0"), match.group(0))
