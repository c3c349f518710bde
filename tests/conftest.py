"""For every test: the scripts of ``tools/`` can be imported. How notebooks are compared: ``notebooks/conftest.py``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
