"""The pairs of ``notebooks/``: a ``.py`` (py:percent) that people edit and an ``.ipynb`` that holds its outputs."""

import hashlib
import os
import tempfile
from pathlib import Path

import jupytext
import nbformat

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python", "pygments_lexer": "ipython3"}
# What the header of the .py holds; everything else (kernel, language, widget state) is the .ipynb's own affair.
HEADER = {
    "formats": "ipynb,py:percent",
    "notebook_metadata_filter": "lmcourse,-all",
    "cell_metadata_filter": "lmcourse,tags,-all",
}


def slugs(folder: Path = NOTEBOOKS) -> list[str]:
    """The names of the notebooks, without suffix, in alphabetical order."""
    return sorted(path.stem for path in folder.glob("*.py") if path.stem != "conftest")


def chosen(names: list[str], parser, folder: Path | None = None) -> list[str]:
    """The notebooks that a command names, by slug or by file; all of them where it names none."""
    known = slugs(folder or NOTEBOOKS)
    asked = [Path(name).stem for name in names]
    for slug in asked:
        if slug not in known:
            parser.error(f"there is no notebook {slug!r}; there are: {', '.join(known) or 'none'}")
    return asked or known


def read(source: Path) -> nbformat.NotebookNode:
    """The notebook that a ``.py`` describes: no outputs; cell ids made from the text, so that they are stable."""
    notebook = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent")
    lmcourse = notebook.metadata.get("lmcourse", {})
    notebook.metadata = nbformat.from_dict(
        {"jupytext": HEADER, "kernelspec": KERNEL, "language_info": LANGUAGE, "lmcourse": lmcourse}
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    identify(notebook)
    return notebook


def identify(notebook: nbformat.NotebookNode) -> None:
    """Gives each cell an id made from its text."""
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def text(notebook: nbformat.NotebookNode) -> str:
    """The ``.py`` of a notebook. Without jupytext's version, which is of no interest to a reader."""
    written = jupytext.writes(notebook, fmt="py:percent")
    return "".join(
        line for line in written.splitlines(keepends=True) if "jupytext_version:" not in line
    )


def write(path: Path, content: str) -> None:
    """Writes a whole file or nothing."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
