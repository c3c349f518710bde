"""Training is killed at random moments, and goes on each time: three here, LMCOURSE_KILLS=50 each week."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COUNT = int(os.environ.get("LMCOURSE_KILLS", 3))


def test_killed_at_random_moments_the_log_and_the_state_are_those_of_the_run_that_nobody_stopped(tmp_path):
    """The moments come from a clock and differ each time; that no step, weight or moment differs may not."""
    command = [sys.executable, str(ROOT / "tests" / "small_runs.py"), "kills", str(tmp_path), str(COUNT), "0"]
    given = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT))
    told = json.loads(subprocess.run(command, env=given, stdout=subprocess.PIPE, check=True).stdout)
    sys.stdout.write(f"{told}\n")  # pytest -s shows it
    assert told["kills"] == COUNT and told["runs"] and told["same"]
