"""What the tokenizers share: checks of what callers pass, and the one small JSON file that each is saved in."""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path

import torch

from lmcourse import _files, arguments

_VERSION = 1


def check_text(name: str, value) -> None:
    """A str without lone surrogates, the halves of a character that have no UTF-8."""
    arguments.text(name, value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        i, c = error.start, ord(value[error.start])
        cure = "use text.encode('utf-8', 'replace').decode()"
        raise ValueError(f"{name}: got the lone surrogate U+{c:04X} at {i}, expected characters; {cure}") from None


def documents(texts) -> Iterator[str]:
    arguments.listed("texts", texts, "a list of documents; use [text] for one")
    for i, text in enumerate(texts):
        check_text(f"texts[{i}]", text)
        yield text


def specials(value, taken: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of two characters or more, all different and none of ``taken``."""
    arguments.listed("specials", value, 'names such as ("[PAD]", "[MASK]")')
    value = tuple(value)
    for i, name in enumerate(value):
        check_text(f"specials[{i}]", name)
        if len(name) < 2 or name in taken:
            raise ValueError(f"specials[{i}]: got {name!r}, which text has too; use a longer name such as '[{name}]'")
    if len(set(value)) < len(value):
        raise ValueError(f"specials: {repeated(value)!r} stands in it twice, expected once")
    return value


def repeated(values: Sequence[Hashable]):
    """The first value that has been there before."""
    seen = set()
    return next(value for value in values if value in seen or seen.add(value))


def size(value, specials: int, symbols: int) -> None:
    arguments.whole("size", value)
    if value < specials + symbols:
        least = f"at least {specials + symbols}: {specials} specials and {symbols} symbols"
        raise ValueError(f"size: got {value}, expected {least}; use a larger size or text with fewer characters")


def known_ids(ids, size: int) -> list[int]:
    """The ids as a list, from a list or a (T,) tensor, each below ``size``."""
    ids = ids.tolist() if isinstance(ids, torch.Tensor) else ids
    arguments.listed("ids", ids, "a list of ids; use encode(text)")
    ids = list(ids)
    if set(map(type, ids)) == {int} and 0 <= min(ids) and max(ids) < size:
        return ids
    for i, x in enumerate(ids):
        if not isinstance(x, Integral) or isinstance(x, bool):
            raise TypeError(f"ids[{i}]: got {x!r}, expected a whole number; decode one text at a time")
        if not 0 <= x < size:
            raise ValueError(f"ids[{i}]: got {x}, expected 0 to {size - 1}; use the tokenizer that made the ids")
    return ids


# ----------------------------------------------------------------------------------------- files


def write(path: str | Path, kind: str, parts: Mapping) -> None:
    """One JSON file, whole or not at all."""
    content = json.dumps({"lmcourse": kind, "version": _VERSION, **parts}, ensure_ascii=False, indent=0)
    _files.write(path, content.encode("utf-8"))


def read(path: str | Path, kind: str, names: Sequence[str]) -> list:
    """The parts called ``names`` of a file that :func:`write` wrote for the same kind."""
    found = read_json(path)
    came = found.get("lmcourse") if isinstance(found, dict) else None
    if came != kind:
        came = f"a file of {came}" if came else "another program's file"
        raise ValueError(f"path: {path} is {came}, expected one of {kind}; use the class whose save wrote it")
    if found.get("version") != _VERSION:
        raise ValueError(
            f"path: {path} has version {found.get('version')!r}, expected {_VERSION}; train and save again, or "
            "install the lmcourse that saved it"
        )
    if missing := [name for name in names if not isinstance(found.get(name), list)]:
        raise ValueError(f"path: {path} has no list {missing[0]!r}, expected {list(names)}; save again")
    return [found[name] for name in names]


def read_json(path: str | Path):
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # not UTF-8, or not JSON
        raise ValueError(f"path: {path} is not a whole JSON file ({error}); save or download it again") from None
