"""For every test: scripts of ``tools/`` and ``recipes/`` can be imported. How notebooks are compared: ``notebooks/``."""

import sys
from pathlib import Path

for folder in ("tools", "recipes"):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / folder))
