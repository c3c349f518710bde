"""How a file is written: whole or not at all, and by one process at a time."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

TEMPORARY = re.compile(r"\.[a-z0-9_]{8}")  # what tempfile.mkstemp puts after the prefix


def write(path: str | Path, content: bytes) -> None:
    """To a temporary file beside ``path``, then renamed: nobody finds half a file; what fails leaves the old one."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)  # the content is on the disk before its name is, should the power fail
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError):  # a full disk, for one
            told = f"{error.strerror or error}, at {len(content):,} bytes for {path}; what stood there is as it was"
            raise OSError(error.errno, told) from error
        raise


def sweep(path: str | Path) -> None:
    """Remove what a :func:`write` of ``path`` left that was killed before it could rename."""
    path = Path(path)
    for temporary in path.parent.glob(f".{path.name}.*"):
        if TEMPORARY.fullmatch(temporary.suffix) and temporary.is_file():  # an editor's files have such names, too
            temporary.unlink(missing_ok=True)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Inside is one process at a time; ``ValueError`` for the next one. However a process ends, it is out again."""
    handle = os.open(folder, os.O_RDONLY) if fcntl else None
    try:
        if fcntl:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        cure = "wait until it ends, or give another folder"
        raise ValueError(f"{folder}: another process, or another call in this one, trains in it; {cure}") from None
    except OSError:  # a disk that has no locks, such as a mounted drive: there the user has to see to it
        pass
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
