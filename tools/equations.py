"""Stamps of the labelled equations: ``python tools/equations.py``, or with a chapter's SLUG for that chapter alone.

A test can tell a wrong variant from the right one, but it does not read the page: a sign could be turned round there
and nothing would notice. So ``tests/equations/SLUG.json`` has a short hash of each labelled equation's LaTeX, and a
test fails where the page says something else. Whoever changes an equation looks at its test, then runs this.
"""

import ast
import hashlib
import json
import re
import sys
from pathlib import Path

import pairs

ROOT = Path(__file__).resolve().parent.parent
_FENCE = re.compile(r"(`{3,}|~{3,}|:{3,})(.*)")
_DOLLARS = re.compile(r"\$\$(.+?)\$\$(?:[ \t]*\(([^()\s]+)\))?", re.DOTALL)
_DIRECTIVE = re.compile(r"^(`{3,}|:{3,})\{math\}[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"^:(\w+):[ \t]*(\S*).*\n?", re.MULTILINE)
_SPACING = re.compile(r"\\(?:[,;:!> ]|quad\b|qquad\b)|(?<!\\)%[^\n]*")


def without_code(page: str) -> str:
    """A page's text without its blocks of code; what stands in directives stays."""
    kept, opened = [], []  # opened: (fence, whether it holds code)
    for line in page.splitlines():
        fence, info = match.groups() if (match := _FENCE.match(line)) else ("", "")
        inside = bool(opened) and opened[-1][1]
        if fence and opened and not info.strip() and fence.startswith(opened[-1][0]):
            opened.pop()
        elif fence and not inside:
            inside = not info.startswith("{") or info.startswith("{code")
            opened.append((fence, inside))
        if not inside:
            kept.append(line)
    return "\n".join(kept)


def numbered(page: str) -> list[tuple[str, str]]:
    """(label, LaTeX) of each display equation of a page's text that has a label, whatever the label is."""
    page = without_code(page)
    found = [(label, latex) for latex, label in _DOLLARS.findall(page) if label]
    for _, body in _DIRECTIVE.findall(page):
        options = dict(_OPTION.findall(body))
        if "label" in options:
            found.append((options["label"], _OPTION.sub("", body)))
    return found


def stamp(latex: str) -> str:
    """A short hash that layout does not change: line breaks, spaces and spacing commands, a full stop at the end."""
    text = " ".join(_SPACING.sub(" ", latex).split()).rstrip(" .,")
    text = re.sub(r"(?<![A-Za-z]) | (?![A-Za-z])", "", text)  # a space between letters ends a command's name
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def read(book: Path) -> dict[str, dict[str, str]]:
    """page → label → stamp, as the pages of a folder are now; pages without a labelled equation are left out."""
    pages = {page.stem: numbered(page.read_text(encoding="utf-8")) for page in sorted(book.glob("*.md"))}
    return {slug: {label: stamp(latex) for label, latex in found} for slug, found in pages.items() if found}


def stamped(folder: Path) -> dict[str, dict[str, str]]:
    """page → label → stamp, as they were when somebody last looked."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def changes(now: dict[str, dict[str, str]], then: dict[str, dict[str, str]]) -> dict[str, str]:
    """label → "new", "changed" or "gone"."""
    new, old = ({label: s for page in pages.values() for label, s in page.items()} for pages in (now, then))
    kinds = {label: "gone" if label not in new else "changed" if label in old else "new" for label in {**old, **new}}
    return {label: kind for label, kind in sorted(kinds.items()) if new.get(label) != old.get(label)}


def covered(folder: Path) -> dict[str, str]:
    """label → the test function that carries ``@pytest.mark.equation(label)``."""
    found = {}
    for file in folder.glob("test_*.py"):
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            for mark in filter(_is_equation_mark, function.decorator_list):
                assert "equation" in [a.arg for a in function.args.args], f"{function.name} does not use the fixture"
                for label in mark.args:
                    found[ast.literal_eval(label)] = f"{file.name}::{function.name}"
    return found


def _is_equation_mark(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.equation"


def write(root: Path = ROOT, slug: str | None = None) -> dict[str, str]:
    """Stamps all pages, or one; what has changed, as :func:`changes` says it."""
    folder = root / "tests" / "equations"
    folder.mkdir(parents=True, exist_ok=True)
    now, then = read(root / "book"), stamped(folder)
    chosen = [slug] if slug else sorted({*now, *then})
    for name in chosen:
        if name in now:
            pairs.write(folder / f"{name}.json", json.dumps(dict(sorted(now[name].items())), indent=1) + "\n")
        else:
            (folder / f"{name}.json").unlink(missing_ok=True)
    return changes({n: now.get(n, {}) for n in chosen}, {n: then.get(n, {}) for n in chosen})


def main(arguments: list[str]) -> int:
    slug = arguments[0] if arguments else None
    if len(arguments) > 1 or (slug and not (ROOT / "book" / f"{slug}.md").is_file()):
        print("use: python tools/equations.py, or with the SLUG of a chapter behind it", file=sys.stderr)
        return 2
    found, tests = write(ROOT, slug), covered(ROOT / "tests")
    for label, kind in found.items():
        print(f"{label}: {kind}; its test: {tests.get(label, 'none')}")
    print(f"{len(found)} stamps changed in tests/equations." + (" Each of these tests was read?" if found else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
