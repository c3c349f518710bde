"""What every page gets: the licence line in the footer, and repairs of the theme's markup."""

from sphinx.application import Sphinx

FOOTER = """<p>Code: <a href="{page}#code">Apache License 2.0</a>.
Prose and figures: <a href="{page}#prose">CC BY 4.0</a>. Data: <a href="{page}#data">as its notices say</a>.</p>"""


def add_footer(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """A licence line whose links are relative, so that a copy of the site works anywhere."""
    if "pathto" in context:
        context["theme_extra_footer"] = FOOTER.format(page=context["pathto"]("book/licences"))


def setup(app: Sphinx) -> dict:
    app.connect("html-page-context", add_footer, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
