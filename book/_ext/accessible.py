"""What every page gets: the licence line in the footer, and repairs of markup that the theme or an extension writes.

Each repair answers a finding of axe-core or a request to another host; tests/test_book.py fails without it.
Repairs of what scripts write in the browser stand in ``book/_static/course.js``.
"""

from sphinx.application import Sphinx

FOOTER = """<p>Code: <a href="{page}#code">Apache License 2.0</a>.
Prose and figures: <a href="{page}#prose">CC BY 4.0</a>. Data: <a href="{page}#data">as its notices say</a>.</p>"""

REPAIRS = (
    # a list of citations has list items
    ('role="doc-biblioentry"', 'role="listitem"'),
    # an empty corner of a table heads nothing
    ('<th class="head"><p></p></th>', "<td></td>"),
    ('<th class="head stub"><p></p></th>', "<td></td>"),
    # a button's name is what it says: "Show code cell output"
    ('<summary aria-label="Toggle hidden content">', "<summary>"),
)


def add_footer(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """A licence line whose links are relative, so that a copy of the site works anywhere."""
    if "pathto" in context:
        context["theme_extra_footer"] = FOOTER.format(page=context["pathto"]("book/licences"))


def repair_body(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Replace markup that assistive technology stumbles over."""
    body = context.get("body", "")
    for wrong, right in REPAIRS:
        body = body.replace(wrong, right)
    context["body"] = body


def name_toggles(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """The side bar's arrows beside chapters have a name."""
    if write := context.get("generate_toctree_html"):
        named = '<summary aria-label="Pages beneath this chapter">'
        context["generate_toctree_html"] = lambda *args, **options: str(write(*args, **options)).replace("<summary>", named)


def leave_out_thebe(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Jupyter Book always adds the scripts of thebe, which name another host; the book does not use them."""
    context["script_files"] = [
        script for script in context.get("script_files", [])
        if "thebe" not in str(script.filename).lower() and "THEBE" not in (script.attributes.get("body") or "")
    ]


def setup(app: Sphinx) -> dict:
    app.connect("html-page-context", add_footer, priority=900)
    app.connect("html-page-context", repair_body, priority=900)
    app.connect("html-page-context", name_toggles, priority=900)
    app.connect("html-page-context", leave_out_thebe, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
