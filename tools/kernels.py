"""Kernel managers for nbclient and nbval that start :mod:`tools.offline_kernel` with settled conditions."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from jupyter_client.manager import AsyncKernelManager, KernelManager

LAUNCHER = Path(__file__).with_name("offline_kernel.py")
ROOT = LAUNCHER.parents[1]
# Two threads and a fixed hash seed: the machine at hand shall not show in the outputs. And the package beside these
# notebooks, whichever the interpreter has installed.
SETTLED = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "2", "PYTHONDONTWRITEBYTECODE": "1"}
# What the person who runs this may have set for their own use, and what would change what a notebook does
UNSET = ("LMCOURSE_DEVICE", "MPLBACKEND", "PYTHONPATH", "PYTHONWARNINGS", "PYTHONSTARTUP")


class _Offline:
    """Sockets in a short-named folder of their own; ``settings`` go into the kernel's environment."""

    settings: dict[str, str] = {}
    python = sys.executable

    def format_kernel_cmd(self, extra_arguments=None):
        return [self.python, str(LAUNCHER), "-f", self.connection_file, *(extra_arguments or [])]

    def _prepare(self, keywords):
        folder = Path(tempfile.mkdtemp(prefix="kernel-"))
        self._sockets = folder
        self.transport, self.ip, self.connection_file = "ipc", str(folder / "socket"), str(folder / "connection.json")
        inherited = {k: v for k, v in (keywords.get("env") or os.environ).items() if k not in UNSET}
        return {**keywords, "env": {**SETTLED, **inherited, "PYTHONHASHSEED": "0", **self.settings}}

    async def _async_cleanup_resources(self, restart=False):
        await super()._async_cleanup_resources(restart)
        shutil.rmtree(self._sockets, ignore_errors=True)


class OfflineKernelManager(_Offline, KernelManager):
    """For nbval."""

    def start_kernel(self, **keywords):
        return super().start_kernel(**self._prepare(keywords))


class AsyncOfflineKernelManager(_Offline, AsyncKernelManager):
    """For nbclient."""

    async def start_kernel(self, **keywords):
        return await super().start_kernel(**self._prepare(keywords))
