"""The setup cell, the same in every notebook but for the pinned packages that the notebook ``needs``.

It is the first code cell and carries the tag "setup"; ``tools/execute.py`` writes it. The address comes from
``_config.yml``. Its output says which versions and which device the outputs below were made with: that differs
from machine to machine, so it is not compared; instead a test holds the text of the cell fast.
"""

from collections.abc import Sequence

import yaml

import pairs

TAG = "setup"
_CELL = '''\
# Setup, the same in every notebook. In Colab it adds the course's package and leaves torch and numpy alone.
import importlib.util
import platform

if "google.colab" in str(get_ipython()) and importlib.util.find_spec("lmcourse") is None:
    packages = '{packages}'
    get_ipython().run_line_magic("pip", f"install -q --no-deps {{packages}}")
    importlib.invalidate_caches()

import torch
import lmcourse
from lmcourse import device

print(f"Python {{platform.python_version()}}, torch {{torch.__version__}}, lmcourse {{lmcourse.__version__}}")
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
    return _CELL.format(packages=" ".join(f'"{package}"' for package in packages))


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
