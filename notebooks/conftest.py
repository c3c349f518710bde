"""Makes ``pytest --nbval notebooks`` compare numbers as numbers, in an empty directory without a network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from nbval_numbers import install  # noqa: E402

install()
