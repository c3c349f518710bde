"""``make xla``: which Python it takes, and the stubs for libraries that torch asks for and XLA does not use."""

import ctypes
import re
import shutil
import subprocess
import sys

import pytest
import xla

COMPILES = all(map(shutil.which, ("gcc", "ldd", "nm"))) and sys.platform.startswith("linux")
needs_compiler = pytest.mark.skipif(not COMPILES, reason="gcc, ldd and nm are needed, on Linux")


def build(target, source: str, *options) -> None:
    command = ["gcc", "-shared", "-fPIC", "-o", target, "-x", "c", "-", "-x", "none", *options]
    subprocess.run(command, input=source, text=True, check=True)


@pytest.fixture
def torchlike(tmp_path):
    """A library that calls two others, which are not there any more; one gives its functions a version."""
    script = tmp_path / "versions"
    script.write_text("libcublas.so.12 { global: cublasGo; };\n")
    source, name = "int cublasGo(void) { return 0; }", "-Wl,-soname,"
    build(tmp_path / "libcublas.so.12", source, f"{name}libcublas.so.12", f"-Wl,--version-script={script}")
    build(tmp_path / "libnccl.so.2", "int ncclGo(void) { return 0; }", f"{name}libnccl.so.2")
    source = "int cublasGo(void), ncclGo(void);\nint own(void) { return 10 * cublasGo() + ncclGo(); }"
    needed = [tmp_path / "libcublas.so.12", tmp_path / "libnccl.so.2"]
    build(tmp_path / "libtorch_python.so", source, *needed, "-Wl,-rpath,$ORIGIN")
    for library in needed:
        library.unlink()
    return tmp_path / "libtorch_python.so"


@needs_compiler
def test_a_library_that_misses_others_loads_with_stubs(torchlike):
    with pytest.raises(OSError, match="libcublas.so.12"):
        ctypes.CDLL(str(torchlike))
    assert sorted(xla.stub(torchlike)) == ["libcublas.so.12", "libnccl.so.2"]
    assert ctypes.CDLL(str(torchlike)).own() == 11, "each stub gives 1, an error"


@needs_compiler
def test_where_nothing_is_missing_nothing_is_made(tmp_path):
    """A build of torch for the CPU."""
    library = tmp_path / "libtorch_python.so"
    build(library, "int own(void) { return 0; }")
    assert xla.stub(library) == [] and list(tmp_path.iterdir()) == [library]


@needs_compiler
def test_without_a_compiler_the_cure_is_named(torchlike, monkeypatch):
    monkeypatch.setattr(xla.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="apt-get install gcc"):
        xla.stub(torchlike)


def python(folder, name: str, status: int) -> None:
    """A stand-in for a Python that the test of suitability lets through, with status 0, or not."""
    (folder / name).write_text(f"#!/bin/sh\nexit {status}\n")
    (folder / name).chmod(0o755)


def test_the_newest_suitable_python_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.delenv("PYTHON", raising=False)
    python(tmp_path, "python3.13", 1)  # no shared library
    python(tmp_path, "python3.12", 0)
    python(tmp_path, "python3.11", 0)
    assert xla.find_python() == str(tmp_path / "python3.12")
    monkeypatch.setenv("PYTHON", "python3.11")
    assert xla.find_python() == str(tmp_path / "python3.11")
    monkeypatch.setenv("PYTHON", "python3.13")
    with pytest.raises(SystemExit, match=r"none of python3.13 is .*libpython3-dev"):
        xla.find_python()


def test_every_package_is_pinned():
    lines = [line for line in xla.REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", line) for line in lines)
    assert {"torch", "torch_xla", "pytest"} <= {line.partition("==")[0] for line in lines}
