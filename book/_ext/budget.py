"""What a notebook costs, as measured: ``notebooks/budget.json`` shown on its page and in the table ``{budget}``."""

import json
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def read_budget(root: Path) -> dict[str, dict]:
    """``{slug: {seconds, peak_mb, cores, processor}}``; empty where nothing has been measured yet."""
    path = root / "notebooks" / "budget.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def machine(cost: dict) -> str:
    """What the cost was measured on."""
    return f"{cost['cores']} cores, {cost['processor']}"


def sentence(cost: dict) -> str:
    """One line for the top of a notebook's page."""
    return f"Runs in {cost['seconds']:.0f} s with {cost['peak_mb']:.0f} MB of memory at most ({machine(cost)})."


def add_cost(app: Sphinx, document: nodes.document) -> None:
    """Put the measured cost under the title of a notebook's page."""
    folder, _, slug = app.env.docname.rpartition("/")
    cost = read_budget(Path(app.srcdir)).get(slug)
    title = next(iter(document.findall(nodes.title)), None)
    if folder != "notebooks" or cost is None or title is None:
        return
    line = nodes.paragraph("", sentence(cost), classes=["lm-cost"])
    title.parent.insert(title.parent.index(title) + 1, line)


class Budget(SphinxDirective):
    """A table of every notebook's seconds and peak memory."""

    def run(self) -> list[nodes.Node]:
        budget = read_budget(Path(self.env.srcdir))
        self.env.note_dependency(str(Path(self.env.srcdir) / "notebooks" / "budget.json"))
        if not budget:
            return [nodes.paragraph("", "No notebook has been measured yet.")]
        rows = [(slug, f"{cost['seconds']:.0f}", f"{cost['peak_mb']:.0f}", machine(cost))
                for slug, cost in sorted(budget.items())]
        return [table(("Notebook", "Seconds", "Peak memory (MB)", "Machine"), rows)]


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> nodes.table:
    """A plain docutils table."""
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    group += nodes.thead("", row(head))
    group += nodes.tbody("", *(row(cells) for cells in rows))
    return nodes.table("", group)


def row(cells: tuple[str, ...]) -> nodes.row:
    """One row of text cells."""
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in cells))


def setup(app: Sphinx) -> dict:
    app.add_directive("budget", Budget)
    app.connect("doctree-read", add_cost)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
