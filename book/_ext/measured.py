"""Numbers and figures of a chapter come from its notebook's committed outputs, never from typing.

The role ``{measured}`key` `` inserts the value that the notebook printed as a line ``key: value`` in
the cell named ``quoted``; the directive ``measured-output`` inserts what the named cell displayed, and its
body, where it has one, stands below as the caption, with formulas, citations and measured numbers as in any paragraph.
A cell's name stands in its metadata, ``"lmcourse": {"name": "…"}``. The notebook is the one that the
page's front matter names. A key or a name that does not exist is a warning, and warnings fail the build.
"""

import json
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

logger = logging.getLogger(__name__)


def named_outputs(notebook: Path) -> dict[str, list[dict]]:
    """name → the outputs of the cell that carries the name."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    named = ((c["metadata"].get("lmcourse", {}).get("name"), c) for c in cells)
    return {name: cell.get("outputs", []) for name, cell in named if name}


def quoted(notebook: Path) -> dict[str, str]:
    """key → value of the lines that the cell ``quoted`` printed."""
    outputs = named_outputs(notebook).get("quoted", [])
    lines = "".join("".join(o.get("text", "")) for o in outputs).splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _notebook(builder) -> Path | None:
    # The page's metadata are collected only after it has been parsed: read the front matter's fields themselves.
    document = builder.inliner.document if isinstance(builder, SphinxRole) else builder.state.document
    fields = {field[0].astext(): field[1].astext() for field in document.findall(nodes.field)}
    slug = fields.get("notebook")
    if not slug:
        logger.warning("no 'notebook:' in the front matter", location=builder.get_location())
        return None
    path = Path(builder.env.srcdir) / "notebooks" / f"{slug}.ipynb"
    builder.env.note_dependency(str(path))
    return path


class Measured(SphinxRole):
    def run(self):
        path = _notebook(self)
        values = quoted(path) if path else {}
        if self.text not in values:
            logger.warning("the notebook quotes no %r", self.text, location=self.get_location())
        return [nodes.inline(self.text, values.get(self.text, "?"), classes=["measured"])], []


class MeasuredOutput(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self):
        path = _notebook(self)
        outputs = named_outputs(path).get(self.arguments[0], []) if path else []
        html = ["".join(o["data"]["text/html"]) for o in outputs if "text/html" in o.get("data", {})]
        if not html:
            logger.warning("no cell %r with an HTML output", self.arguments[0], location=self.get_location())
        shown = [nodes.raw("", part, format="html") for part in html]
        return self._captioned(shown) if self.content else shown

    def _captioned(self, shown: list[nodes.Node]) -> list[nodes.Node]:
        """The output and its caption as one figure. Not docutils' own, which Sphinx would want to number."""
        caption = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, caption)
        for child in caption:
            if not isinstance(child, (nodes.paragraph, nodes.system_message)):
                logger.warning("a caption is paragraphs alone", location=self.get_location())
        mark = lambda html: nodes.raw("", html, format="html")  # noqa: E731
        opened, between = '<figure class="measured-output"><div class="shown">', "</div><figcaption>"
        return [mark(opened), *shown, mark(between), *caption.children, mark("</figcaption></figure>")]


def setup(app):
    app.add_role("measured", Measured())
    app.add_directive("measured-output", MeasuredOutput)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
