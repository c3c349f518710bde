"""``{api} lmcourse``: every module's public names with signatures and docstrings, read from the source.

Nothing is imported, so the book is built without torch. Docstrings may be plain reStructuredText or
have NumPy or Google sections.
"""

import ast
import re
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from docutils.utils import new_document
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring, NumpyDocstring
from sphinx.parsers import RSTParser
from sphinx.util.docutils import LoggingReporter, SphinxDirective

Function = ast.FunctionDef | ast.AsyncFunctionDef
Line = tuple[str, int]  # a line of reStructuredText and the line of the source file it comes from
_ROLE = re.compile(r":(func|class|meth|mod|attr|data):`([A-Za-z_])")
_BAR = re.compile(r"(``.*?``)|(?<=[^\s|])\|(?=[^\s|])")  # a bar that begins no substitution, as in p(c|w)
_STYLE = Config(napoleon_use_rtype=False, napoleon_use_param=True)


def docstring(node: ast.AST) -> list[Line]:
    """The docstring's lines as reStructuredText; empty if there is none."""
    text = ast.get_docstring(node)
    if not text:
        return []
    text = _BAR.sub(lambda found: found[1] or r"\|", text)
    text = _ROLE.sub(r":\1:`.\2", text)  # the dot: a name of any module, not only of this one
    text = str(GoogleDocstring(str(NumpyDocstring(text, _STYLE)), _STYLE))
    return [(line, node.body[0].lineno + index) for index, line in enumerate(text.splitlines())]


def signature(node: Function, method: bool) -> str:
    """``(arguments) -> result`` as the source writes it, without self or cls."""
    arguments = ast.unparse(node.args)
    if method and not any(ast.unparse(mark) == "staticmethod" for mark in node.decorator_list):
        arguments = arguments.partition(",")[2].strip()
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({arguments}){result}"


def public(body: list[ast.stmt]) -> list[ast.stmt]:
    """The functions and classes of a body whose names do not begin with an underscore."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node for node in body if isinstance(node, kinds) and not node.name.startswith("_")]


def entry(kind: str, title: str, at: int, lines: list[Line]) -> list[Line]:
    """One ``py:`` directive with its content indented; ``at`` is its line in the source."""
    return [(f".. py:{kind}:: {title}", at), ("", at), *(("   " + text, line) for text, line in lines), ("", at)]


def describe_function(node: Function, method: bool = False) -> list[Line]:
    """A function, method or property."""
    if any(ast.unparse(mark).endswith("property") for mark in node.decorator_list):
        return entry("property", node.name, node.lineno, docstring(node))
    kind = "method" if method else "function"
    return entry(kind, node.name + signature(node, method), node.lineno, docstring(node))


def fields(node: ast.ClassDef) -> list[Line]:
    """A dataclass's public fields as they are written: name, type and default."""
    written = [item for item in node.body if isinstance(item, ast.AnnAssign) and not item.target.id.startswith("_")]
    if not written:
        return []
    code = ["", ".. code-block:: python", "", *(f"   {ast.unparse(item)}" for item in written), ""]
    return [(line, node.lineno) for line in code]


def describe_class(node: ast.ClassDef) -> list[Line]:
    """A class, its fields and its public methods."""
    methods = [item for item in public(node.body) if isinstance(item, Function)]
    inside = [line for item in methods for line in describe_function(item, method=True)]
    return entry("class", node.name, node.lineno, [*docstring(node), ("", node.lineno), *fields(node), *inside])


def describe(source: str, name: str) -> list[Line]:
    """reStructuredText for a whole module."""
    tree = ast.parse(source)
    lines = [(f".. py:module:: {name}", 1), ("", 1), *docstring(tree), ("", 1)]
    for node in public(tree.body):
        lines += describe_class(node) if isinstance(node, ast.ClassDef) else describe_function(node)
    return lines


class Api(SphinxDirective):
    """The directive: one argument, the package's name; a section for each of its modules."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        package = Path(self.env.srcdir) / self.arguments[0]
        modules = [path for path in sorted(package.glob("*.py")) if not path.name.startswith("_")]
        if not modules:
            raise self.error(f"api: there is no package {package.name} with modules in it")
        return [self.section(f"{package.name}.{path.stem}", path) for path in modules]

    def section(self, name: str, path: Path) -> nodes.section:
        """A heading and the description of one module."""
        self.env.note_dependency(str(path))
        title = nodes.title("", "", nodes.literal(name, name))
        made = nodes.section("", title, ids=[nodes.make_id(f"section-{name}")], names=[name])
        made += self.parse_rst(describe(path.read_text(encoding="utf-8"), name), str(path))
        return made

    def parse_rst(self, lines: list[Line], source: str) -> list[nodes.Node]:
        """Parse reStructuredText from inside a Markdown page; warnings name the source's own lines."""
        parser = RSTParser()
        parser.set_application(self.env.app)
        document = new_document(source, self.state.document.settings)
        document.reporter = LoggingReporter.from_reporter(document.reporter)
        texts, numbers = zip(*lines)
        parser.parse(StringList(list(texts), items=[(source, number - 1) for number in numbers]), document)
        return document.children


def setup(app: Sphinx) -> dict:
    app.add_directive("api", Api)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
