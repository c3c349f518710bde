"""Runs the notebooks under Colab's versions: ``python tools/colab.py [slug …]``, all of them without a slug.

An environment of its own (``_build/colab``, about 5 GB) gets Colab's Python, torch and so on, and no lmcourse: the
unchanged setup cell has to bring it. Its address leads to a local copy of the last commit. Then it is checked that
no cell fails, that no package of Colab was replaced, and that the outputs agree with the committed ones within the
cells' tolerances. This is Colab's versions, not Colab: the GPU, the front end and most of its packages are missing.
"""

import argparse
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import nbclient
import nbformat
import yaml
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import CellExecutionError

import compare
import pairs
import setup_cell

FOLDER = pairs.ROOT / "_build" / "colab"
PYTHONS = ("python3.13", "python3.12")  # Colab has 3.13; 3.12 stands in where that is missing
VERSIONS = {
    "torch": "2.11.0",
    "numpy": "2.1.3",
    "ipython": "7.34.0",
    "ipykernel": "6.17.1",
    "ipywidgets": "7.7.1",
    "matplotlib": "3.10.0",
    "pyarrow": "18.1.0",
    "regex": "2024.11.6",
    "safetensors": "0.6.2",
}
KERNEL = "google.colab._shell.Kernel"
_SHELL = '''"""Stands in for Colab's shell, by whose name a notebook knows where it is."""
from ipykernel.ipkernel import IPythonKernel
from ipykernel.zmqshell import ZMQInteractiveShell


class Shell(ZMQInteractiveShell):
    pass


class Kernel(IPythonKernel):
    shell_class = Shell
'''


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def output_of(*command: object) -> str:
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True).stdout.strip()


# --------------------------------------------------------------------------------- the environment


def find_python() -> str:
    """The Python to use: ``PYTHON`` if it is set, else the first of 3.13 and 3.12 that starts."""
    named = os.environ.get("PYTHON")
    for name in [named] if named else PYTHONS:
        if (path := shutil.which(name)) and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    raise SystemExit(f"no {named or ' and no '.join(PYTHONS)} here; install one, or name it: make colab PYTHON=…")


def environment(folder: Path = FOLDER) -> Path:
    """The Python of the environment with Colab's versions; made at the first call, kept for the next."""
    python, wanted, marker = folder / "bin" / "python", json.dumps(VERSIONS), folder / "versions.json"
    if marker.exists() and marker.read_text() == wanted:
        return python
    found = find_python()
    say(f"{folder.name}: an environment with {output_of(found, '--version')} and torch {VERSIONS['torch']}; minutes")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([found, "-m", "venv", str(folder)], check=True)
    packages = [f"{name}=={version}" for name, version in VERSIONS.items()]
    subprocess.run([str(python), "-m", "pip", "install", "-q", *packages, "setuptools", "wheel"], check=True)
    site = Path(output_of(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
    (site / "google" / "colab").mkdir(parents=True)
    (site / "google" / "colab" / "_shell.py").write_text(_SHELL)
    marker.write_text(wanted)
    return python


def installed(python: Path) -> dict[str, str]:
    """Name and version of each package in the environment."""
    listed = json.loads(output_of(python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"))
    return {package["name"].lower(): package["version"] for package in listed}


def without_course(python: Path, needs: Sequence[str]) -> dict[str, str]:
    """Takes away what an earlier notebook's setup cell brought; what is left."""
    names = ["lmcourse", *(package.partition("==")[0] for package in needs)]
    subprocess.run([str(python), "-m", "pip", "uninstall", "-q", "-y", *names], check=True, capture_output=True)
    return installed(python)


def local_address(folder: Path) -> dict[str, str]:
    """Settings of git by which the course's address leads to a copy of the last commit in ``folder``."""
    repository = yaml.safe_load((pairs.ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]
    copy_ = folder / "course.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(pairs.ROOT), str(copy_)], check=True)
    commit = output_of("git", "-C", pairs.ROOT, "rev-parse", "HEAD")
    subprocess.run(["git", "-C", str(copy_), "update-ref", f"refs/heads/{repository['branch']}", commit], check=True)
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{copy_.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": repository["url"],
    }


# ---------------------------------------------------------------------------------- the notebooks


def execute(notebook: nbformat.NotebookNode, python: Path, settings: Mapping[str, str], folder: Path) -> None:
    """Runs the notebook with Colab's shell in the empty ``folder``."""

    class Kernel(AsyncKernelManager):
        def format_kernel_cmd(self, extra_arguments=None):
            options = ["-f", self.connection_file, f"--IPKernelApp.kernel_class={KERNEL}"]
            return [str(python), "-Xfrozen_modules=off", "-m", "ipykernel_launcher", *options]

    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "LMCOURSE_DEVICE")}
    environ = {**kept, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "2", **settings}
    client = nbclient.NotebookClient(
        notebook, timeout=900, kernel_manager_class=Kernel, coalesce_streams=True, record_timing=False
    )
    client.execute(cwd=str(folder), env=environ)


def unlike(committed: nbformat.NotebookNode, new: nbformat.NotebookNode) -> list[str]:
    """Where the outputs differ by more than the tolerances."""
    found = []
    pairs_of_cells = zip(committed.cells, new.cells)
    for i, (old, now) in enumerate((o, n) for o, n in pairs_of_cells if o.cell_type == "code"):
        if setup_cell.is_standard(old.source, committed) or "nbval-ignore-output" in old.metadata.get("tags", []):
            continue
        outputs = [old.outputs, now.outputs]
        if any(compare.VIEW in output.get("data", {}) for output in old.outputs):
            outputs = [_plain(o) for o in outputs]  # the older widgets are made otherwise, from the same pictures
        tolerance = old.metadata.get("lmcourse", {}).get("tolerance")
        found += [f"code cell {i + 1}: {line}" for line in compare.differences(*outputs, tolerance)]
    return found


def _plain(outputs) -> list[dict]:
    texts = ("".join(output.get("data", {}).get("text/plain", "")) for output in outputs)
    return [{"output_type": "stream", "name": "stdout", "text": text} for text in texts if text.startswith("Slider: ")]


def check(slug: str, python: Path, folder: Path) -> list[str]:
    """What goes wrong with one notebook under Colab's versions."""
    committed = nbformat.read(pairs.NOTEBOOKS / f"{slug}.ipynb", as_version=4)
    before = without_course(python, committed.metadata.get("lmcourse", {}).get("needs", []))
    notebook = copy.deepcopy(committed)
    with tempfile.TemporaryDirectory(dir=folder) as empty:
        try:
            execute(notebook, python, local_address(Path(tempfile.mkdtemp(dir=folder))), Path(empty))
        except CellExecutionError as error:
            return [f"a cell failed\n{error}"]
    after = installed(python)
    changed = [name for name in before if before[name] != after.get(name)]
    found = [f"{name} was {before[name]} and is {after.get(name)}" for name in changed]
    if "lmcourse" not in after:
        found.append("the setup cell did not install lmcourse")
    return found + unlike(committed, notebook)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python tools/colab.py", description=__doc__.splitlines()[0])
    parser.add_argument("slug", nargs="*", help="which notebooks; all of them when none is named")
    options = parser.parse_args(arguments)
    asked = pairs.chosen(options.slug, parser)
    python, wrong = environment(), 0
    with tempfile.TemporaryDirectory(prefix="colab-") as folder:
        for slug in asked:
            complaints = check(slug, python, Path(folder))
            wrong += bool(complaints)
            say("\n  ".join([f"{slug}: {'as committed' if not complaints else 'not as committed'}", *complaints]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
