"""Compares the outputs of a notebook's cell: words as words, numbers as numbers.

A number may differ by the tolerance in the cell's metadata, ``lmcourse.tolerance``; without one it may not differ
at all. ``{"atol": a, "rtol": r}`` allows a + r·|reference|. ``a`` is one number, or a mapping from the unit of a
number's last printed place ("0.001" for 5.123, "1" for 17) to a number, for the places that vary.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

# A number stands alone: not "word2vec", "B4" or "10s". Thousands may have commas, and "3." is how numpy writes 3.0.
NUMBER = re.compile(
    r"(?<![\w.])[-+\u2212]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?(?!\w|\.\d)"
    r"|(?<![\w.])[-+\u2212]?\.\d+(?!\w)"
)
VIEW = "application/vnd.jupyter.widget-view+json"
PICTURES = ("image/png", "image/jpeg", "image/svg+xml", "application/pdf")
# Pictures are drawn anew by every version of matplotlib; that one is there is compared, and its data are.
_DRAWN = re.compile(r"<svg\b.*?</svg>|<img\b[^>]*\bsrc=[\"']data:[^>]*>", re.S)


@dataclass(frozen=True)
class Text:
    """A text taken apart: ``words`` with "#" for each number, ``numbers`` as they were printed."""

    words: str
    numbers: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Text":
        text = text.replace("#", "＃")
        numbers = tuple(m.group(0) for m in NUMBER.finditer(text))
        # How far a column is indented depends on the width of its numbers, so blanks before a number do not count.
        words = re.sub(r"[ \t]*#", " #", re.sub(r"[ \t]+", " ", NUMBER.sub("#", text)))
        return cls("\n".join(line.strip() for line in words.strip().splitlines()), numbers)


def value(number: str) -> float:
    """The value of a printed number."""
    return float(number.replace(",", "").replace("\u2212", "-"))


def unit(number: str) -> str:
    """The unit of the last printed place: "0.001" for "5.123", "1" for "17" and for "1,234"."""
    exponent = Decimal(number.replace(",", "").replace("\u2212", "-")).as_tuple().exponent
    return f"{Decimal(1).scaleb(exponent):f}"


def allowed(number: str, tolerance: Mapping) -> float:
    """How far a new number may be from ``number``, the committed one."""
    unknown = set(tolerance) - {"atol", "rtol"}
    if unknown:
        raise ValueError(f"tolerance: got {sorted(unknown)}, expected 'atol' and 'rtol'")
    absolute = tolerance.get("atol", 0)
    if isinstance(absolute, Mapping):
        absolute = absolute.get(unit(number), 0)
    return absolute + tolerance.get("rtol", 0) * abs(value(number))


# --------------------------------------------------------------------------------------- outputs


def by_stream(outputs: Sequence[Mapping]) -> list[Mapping]:
    """What was printed, then the warnings, then the rest in order: which stream arrives first is a race."""
    return sorted(outputs, key=lambda output: {"stdout": 0, "stderr": 1}.get(output.get("name"), 2))


def parts(outputs: Sequence[Mapping]) -> list[tuple[str, str]]:
    """What of a cell's outputs is compared: (kind, text), in order, the pieces of a stream put together."""
    found: list[tuple[str, str]] = []
    streams: dict[str, int] = {}
    for output in by_stream(outputs):
        kind = output["output_type"]
        if kind == "stream":
            name = output["name"]
            if name not in streams:
                streams[name] = len(found)
                found.append((name, ""))
            found[streams[name]] = (name, found[streams[name]][1] + _joined(output["text"]))
        elif kind == "error":
            found.append(("error", f"{output['ename']}: {output['evalue']}"))
        else:
            found.extend(sorted(_data(output["data"])))
    return [(kind, _overwritten(text)) for kind, text in found]


def _data(data: Mapping):
    for kind, content in data.items():
        if kind in PICTURES or kind == VIEW:
            yield kind, "present"
        elif kind == "text/html":
            yield kind, _DRAWN.sub("<picture>", _joined(content))
        else:
            yield kind, _joined(content)


def _joined(text) -> str:
    return text if isinstance(text, str) else "".join(text) if isinstance(text, list) else repr(text)


def _overwritten(text: str) -> str:
    """What is left on the screen of lines that returned to their beginning, as progress does."""
    return re.sub(r"^.*\r(?=[^\n])", "", text, flags=re.M).replace("\r\n", "\n")


def differences(committed: Sequence[Mapping], new: Sequence[Mapping], tolerance: Mapping | None = None) -> list[str]:
    """What differs between two lists of outputs, a line each; none where they agree."""
    before, after = parts(committed), parts(new)
    if [kind for kind, _ in before] != [kind for kind, _ in after]:
        return [f"outputs: committed {[k for k, _ in before]}, now {[k for k, _ in after]}"]
    return [
        f"{kind}: {line}"
        for (kind, old), (_, now) in zip(before, after)
        for line in _text_differences(Text.of(old), Text.of(now), tolerance or {})
    ]


def _text_differences(old: Text, now: Text, tolerance: Mapping):
    if old.words != now.words:
        lines = list(zip(old.words.splitlines(), now.words.splitlines()))
        first = next((pair for pair in lines if pair[0] != pair[1]), (old.words[-200:], now.words[-200:]))
        yield f"the words differ: committed {first[0]!r}, now {first[1]!r}"
        return
    for i, (a, b) in enumerate(zip(old.numbers, now.numbers)):
        limit = allowed(a, tolerance)
        if not abs(value(a) - value(b)) <= limit * (1 + 1e-9):
            yield f"number {i + 1}: committed {a}, now {b}, allowed ±{limit:.4g}"
