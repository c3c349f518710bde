"""The setup cell, the same in every notebook but for the pinned packages that the notebook ``needs``.

It is the first code cell and carries the tag "setup"; ``tools/execute.py`` writes it, and where nothing else has
changed, ``python tools/setup_cell.py SLUG`` does so without running the notebook. The address comes from
``_config.yml``. Its output says which versions and which device the outputs below were made with: that differs
from machine to machine, so it is not compared; instead a test holds the text of the cell fast.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import nbformat
import yaml

import pairs

TAG = "setup"
_CELL = '''\
# Setup, the same in every notebook. In Colab it adds the course's package
# and leaves torch and numpy alone.
import importlib.util
import platform

missing = importlib.util.find_spec("lmcourse") is None
if "google.colab" in str(get_ipython()) and missing:
    packages = [
{packages}
    ]
    quoted = " ".join(f'"{{package}}"' for package in packages)
    get_ipython().run_line_magic("pip", f"install -q --no-deps {{quoted}}")
    importlib.invalidate_caches()

import torch
import lmcourse
from lmcourse import device

print(f"Python {{platform.python_version()}}, torch {{torch.__version__}}, "
      f"lmcourse {{lmcourse.__version__}}")
print(device.choose().reason)'''


def address() -> str:
    """What pip installs the course's package from: the repository and branch that ``_config.yml`` names."""
    repository = yaml.safe_load((pairs.ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]
    return f"git+{repository['url']}@{repository['branch']}"


def standard(needs: Sequence[str] = ()) -> str:
    """The cell's text. ``needs``: pinned packages, such as "name==1.0.0"; anything else is a ``ValueError``."""
    for package in needs:
        name, _, version = package.partition("==")
        if not (name.replace("-", "").isalnum() and version.replace(".", "").isalnum()):
            raise ValueError(f"needs: got {package!r}, expected a pinned package such as 'name==1.0.0'")
    packages = [f"lmcourse @ {address()}", *needs]
    return _CELL.format(packages="\n".join(f'        "{package}",' for package in packages))


def put(notebook) -> None:
    """Gives the cell with the tag "setup" its standard text."""
    needs = notebook.metadata.get("lmcourse", {}).get("needs", [])
    for cell in notebook.cells:
        if TAG in cell.metadata.get("tags", []):
            cell.source = standard(needs)
    pairs.identify(notebook)


def is_standard(source: str, notebook) -> bool:
    """Whether ``source`` is the setup cell of ``notebook``."""
    return source == standard(notebook.metadata.get("lmcourse", {}).get("needs", []))


def rewrite(slug: str, folder: Path = pairs.NOTEBOOKS) -> None:
    """Gives a pair its setup cell as it is now, without running it: all outputs stay."""
    path = folder / f"{slug}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    put(notebook)
    pairs.write(path, nbformat.writes(notebook) + "\n")
    pairs.write(path.with_suffix(".py"), pairs.text(notebook))


if __name__ == "__main__":
    names = argparse.ArgumentParser(prog="python tools/setup_cell.py", description=rewrite.__doc__)
    names.add_argument("slug", nargs="*", help="which notebooks; all of them when none is named")
    for chosen in pairs.chosen(names.parse_args().slug, names):
        rewrite(chosen)
