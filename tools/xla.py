"""Runs ``tests/xla`` on a real XLA device, which here is the processor: ``python tools/xla.py [what pytest takes …]``.

The course trains on a TPU through torch_xla, which compiles for a TPU or for the processor by the same path. An
environment of its own (``_build/xla``, 2 GB, a minute) gets the packages of ``xla-requirements.txt``. On PyPI, torch
for Linux is built for CUDA and does not load without NVIDIA's libraries, of which nothing is used here: in place of
each that is missing there stands a stub. A build of torch for the CPU misses none and gets none.

This is XLA, not a TPU: its bf16 arithmetic, its memory and its speed are not seen.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "_build" / "xla"
REQUIREMENTS = ROOT / "tools" / "xla-requirements.txt"
PYTHONS = ("python3.13", "python3.12", "python3.11", "python3")
SETTINGS = {"PJRT_DEVICE": "CPU", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
_SUITABLE = """
import ctypes, sys, sysconfig, venv
assert (3, 11) <= sys.version_info < (3, 14)
ctypes.CDLL(sysconfig.get_config_var("INSTSONAME"))
"""
_STARTS = "import torch, torch_xla; print((torch.ones(2, device=torch_xla.device()) + 1).sum().item())"
_CUDA = re.compile(r"(cu|p?nccl|nvshmem)")  # how the names of functions of NVIDIA's libraries begin


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def output_of(*command: object, **options) -> str:
    return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, **options).stdout.strip()


# --------------------------------------------------------------------------------- the environment


def find_python() -> str:
    """``PYTHON`` if it is set, else the first that has a wheel of torch_xla and the shared library it links to."""
    named = os.environ.get("PYTHON")
    for path in filter(None, map(shutil.which, [named] if named else PYTHONS)):
        if subprocess.run([path, "-c", _SUITABLE], capture_output=True).returncode == 0:
            return path
    raise SystemExit(
        f"none of {named or ', '.join(PYTHONS)} is a Python 3.11 to 3.13 with the shared library that torch_xla links "
        "to (libpython3.x.so.1.0). On Debian and Ubuntu: apt-get install libpython3-dev python3-venv; elsewhere a Python "
        "configured with --enable-shared. Then: make xla PYTHON=that-one"
    )


def environment(folder: Path = FOLDER) -> Path:
    """The Python of the environment; made at the first call, kept for the next."""
    python, wanted, marker = folder / "bin" / "python", REQUIREMENTS.read_text(), folder / "requirements.txt"
    if marker.exists() and marker.read_text() == wanted:
        return python
    found = find_python()
    say(f"{folder.name}: an environment with {output_of(found, '--version')} and torch_xla; 2 GB, a minute or two")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([found, "-m", "venv", folder], check=True)
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "-r", REQUIREMENTS], check=True)
    site = Path(output_of(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
    if made := stub(site / "torch" / "lib" / "libtorch_python.so"):
        say(f"{folder.name}: stubs for {', '.join(made)}")
    output_of(python, "-c", _STARTS, env={**os.environ, **SETTINGS})
    marker.write_text(wanted)
    return python


# --------------------------------------------------------------------------------------- the stubs


def linked(library: Path) -> tuple[list[str], list[Path]]:
    """What ``library`` needs, and what that needs: names that are missing, and files that are there."""
    missing, found = [], [library]
    for line in output_of("ldd", library).splitlines():
        name, arrow, place = line.strip().partition(" => ")
        if arrow and place == "not found":
            missing += [] if name in missing else [name]
        elif arrow:
            found.append(Path(place.rpartition(" (")[0]))
    return missing, found


def symbols(files: Iterable[Path], kind: str) -> set[tuple[str, str]]:
    """(name, version) of the symbols that are ``"undefined"`` or ``"defined"`` in ``files``; version "" is none."""
    lines = output_of("nm", "-D", f"--{kind}-only", *files).splitlines()
    names = (line.split()[-1] for line in lines if len(line.split()) > 1)
    return {(name, version.lstrip("@")) for name, _, version in (symbol.partition("@") for symbol in names)}


def stub(library: Path) -> list[str]:
    """Puts a stub beside ``library`` for each library that it misses; their names.

    It is one file under many names. Each function in it gives 1, an error for all of these libraries.
    """
    missing, found = linked(library)
    if not missing:
        return []
    if not (compiler := shutil.which("cc") or shutil.which("gcc")):
        raise SystemExit("no C compiler here, which the stubs need. On Debian and Ubuntu: apt-get install gcc")
    there = {name for name, _ in symbols(found, "defined")}
    versions: dict[str, str] = {}
    for name, version in sorted(symbols(found, "undefined")):  # "" comes first, and a version replaces it
        if _CUDA.match(name) and name not in there:
            versions[name] = version
    source, script, target = (library.parent / f"libstubs.{end}" for end in ("c", "map", "so"))
    source.write_text("".join(f"int {name}(void) {{ return 1; }}\n" for name in versions))
    script.write_text("".join(_node(v, versions) for v in sorted(set(versions.values())) if v))
    versioned = [f"-Wl,--version-script={script}"] if any(versions.values()) else []
    options = ["-shared", "-fPIC", "-w", "-fno-builtin", *versioned]
    subprocess.run([compiler, *options, "-o", target, source], check=True)
    for name in missing:
        (library.parent / name).symlink_to(target.name)
    return missing


def _node(version: str, versions: dict[str, str]) -> str:
    names = "".join(f" {name};" for name, its in versions.items() if its == version)
    return f"{version} {{ global:{names} }};\n"


# ------------------------------------------------------------------------------------------- tests


def main(arguments: list[str]) -> int:
    python = environment()
    command = [python, "-m", "pytest", *(arguments or [ROOT / "tests" / "xla"])]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **SETTINGS}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
