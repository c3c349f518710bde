"""Lays out the files of a new chapter: ``python tools/new_chapter.py SLUG``. Page, notebook, tests, checks, solutions.

Everything that is still to be written is marked TODO; the book builds at once. The next steps stand in
``CONTRIBUTING.md``.
"""

import re
import sys
import tempfile
from pathlib import Path

import nbformat
import yaml

import pairs
import repository
import setup_cell

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = Path(__file__).with_name("templates")
_SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

# The course's plan. A chapter goes behind the nearest one before it that is already there.
PLAN = {
    "Part I. Words and pieces": {
        "static-embeddings": "One word, one vector",
        "subwords": "From UNK to pieces",
    },
    "Part II. Context from recurrence": {
        "recurrence": "Language models and the vanishing gradient",
        "elmo": "The context decides the vector",
        "ulmfit": "Fine-tuning as a recipe",
    },
    "Part III. Attention and three ways to pretrain": {
        "attention": "Every position, one step",
        "transformer": "The block",
        "pretraining": "Why start from θ̂",
        "bert": "Both sides at once",
        "t5": "Corrupt and rebuild",
        "gpt": "Predict the next piece",
    },
    "Part IV. Scale": {
        "efficient-attention": "Living with T²",
        "in-context-learning": "Learning without updates",
        "scaling-laws": "Spending compute",
        "epilogue": "One probe, every model",
    },
}


def checked(slug: str) -> str:
    """The slug itself, if it can name a chapter; ``ValueError`` otherwise."""
    if not isinstance(slug, str) or not _SLUG.fullmatch(slug) or len(slug) > 40:
        raise ValueError(f"SLUG: got {slug!r}, expected up to 40 letters in words joined by hyphens: scaling-laws")
    return slug


def title(slug: str) -> str:
    """The planned title, or the slug as words."""
    planned = {s: t for part in PLAN.values() for s, t in part.items()}
    return planned.get(slug, slug.replace("-", " ").capitalize())


# ------------------------------------------------------------------------------------- the files


def fill(name: str, slug: str) -> str:
    """A template with the chapter's names in it."""
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    names = {"@@SLUG@@": slug, "@@TITLE@@": title(slug), "@@MODULE@@": slug.replace("-", "_")}
    for key, value in names.items():
        text = text.replace(key, value)
    return text


def notebook(slug: str) -> nbformat.NotebookNode:
    """The new notebook, with the standard setup cell and no outputs."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"{slug}.py"
        source.write_text(fill("notebook.py", slug), encoding="utf-8")
        cells = pairs.read(source)
    setup_cell.put(cells)
    return cells


def files(slug: str, root: Path = ROOT) -> dict[Path, str]:
    """path → text of everything that a chapter consists of, ``_toc.yml`` last."""
    cells, module = notebook(slug), slug.replace("-", "_")
    return {
        root / "book" / f"{slug}.md": fill("chapter.md", slug),
        root / "notebooks" / f"{slug}.py": pairs.text(cells),
        root / "notebooks" / f"{slug}.ipynb": nbformat.writes(cells) + "\n",
        root / "tests" / f"test_{module}.py": fill("test.py", slug),
        root / "lmcourse" / "exercises" / f"{module}.py": fill("exercises.py", slug),
        root / "teaching" / "solutions" / f"{module}.py": fill("solutions.py", slug),
        root / "teaching" / "solutions" / f"{module}.md": fill("solutions.md", slug),
        root / "_toc.yml": enter(slug, (root / "_toc.yml").read_text(encoding="utf-8")),
    }


# ---------------------------------------------------------------------------------- table of contents


def enter(slug: str, toc: str) -> str:
    """The text of ``_toc.yml`` with the chapter in its place, its notebook beneath; comments and order are kept.

    A planned chapter stands in its part, behind the nearest planned one before it; a part that is not
    there yet is made. Any other chapter stands behind the last one.
    """
    present = re.findall(r"^ *- file: notebooks/(\S+)$", toc, re.MULTILINE)
    if slug in present:
        raise ValueError(f"_toc.yml: the chapter {slug!r} is in it already")
    if not present:
        raise ValueError("_toc.yml: no line '- file: notebooks/…' to put the new chapter behind")
    part = next((name for name, chapters in PLAN.items() if slug in chapters), None)
    line, new_part = _anchor(slug, part, present, toc)
    if not line:
        raise ValueError(f"_toc.yml: no chapter that comes before {slug!r} is in it; enter the two pages by hand")
    indent = line[1] if line.lastindex else "      "
    pages = f"{indent}- file: book/{slug}\n{indent}  sections:\n{indent}    - file: notebooks/{slug}\n"
    if new_part:  # chapters have a number, notebooks and sections none
        pages = f"  - caption: {part}\n    numbered: 1\n    chapters:\n{pages}"
    head = toc[: line.end()]
    return (head if head.endswith("\n") else head + "\n") + pages + toc[line.end() :]


def _anchor(slug: str, part: str | None, present: list[str], toc: str) -> tuple[re.Match | None, bool]:
    """The line of the table behind which the chapter goes, and whether its part has to be made there."""
    order = [s for chapters in PLAN.values() for s in chapters]
    before = [s for s in (order[: order.index(slug)] if part else present) if s in present]
    there = part in {p.get("caption") for p in yaml.safe_load(toc)["parts"]}
    if there and not set(before) & set(PLAN[part]):  # the first of its part
        return re.search(rf"^ *- caption: {re.escape(part)}\n(?: +.*\n)*? +chapters:.*\n", toc, re.MULTILINE), False
    last = before[-1] if before else ""
    pages = rf"^( *)- file: book/{re.escape(last)}\n +sections:\n +- file: notebooks/{re.escape(last)}$\n?"
    return re.search(pages, toc, re.MULTILINE), bool(part) and not there


# ------------------------------------------------------------------------------------------- write


def make(slug: str, root: Path = ROOT) -> list[Path]:
    """Writes the chapter's files, all of them or none; the paths, ``_toc.yml`` last."""
    checked(slug)
    texts = files(slug, root)
    *new, toc = texts
    for path in new:
        if path.exists():
            raise ValueError(f"SLUG: {path.relative_to(root)} exists already; choose another name, or remove the file")
    written = []
    try:
        for path in new:
            path.parent.mkdir(parents=True, exist_ok=True)  # a published copy has no teaching/solutions
            repository.write(path, texts[path].encode())
            written.append(path)
        repository.write(toc, texts[toc].encode())
    except BaseException:
        for path in written:
            path.unlink()
        raise
    return list(texts)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("use: make chapter SLUG=its-name", file=sys.stderr)
        return 2
    try:
        written = make(arguments[0])
    except (ValueError, OSError) as error:
        print(f"{error}; nothing was written", file=sys.stderr)
        return 2
    for path in written:
        print(path.relative_to(ROOT))
    print(f"Next: replace each TODO, then python tools/execute.py {arguments[0]}. CONTRIBUTING.md has the whole list.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
