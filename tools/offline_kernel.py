"""The Python kernel that notebooks are executed and tested in: an empty directory, no network, the same hash seed.

Run in place of ``ipykernel_launcher``. Where the system allows it, the process moves into a network namespace of
its own, with nothing in it but loopback; everywhere, connecting to another host raises an error that says why.
It talks to its parent over sockets in the file system, which a namespace does not cut.
"""

import atexit
import ctypes
import fcntl
import os
import shutil
import socket
import struct
import sys
import tempfile

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1


def own_network() -> bool:
    """Moves this process into a network namespace that has only loopback; False where that is not allowed."""
    if not sys.platform.startswith("linux"):
        return False
    user, group = os.getuid(), os.getgid()
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if unshare(CLONE_NEWNET) != 0:  # needs privilege, which a user namespace gives
        if unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            return False
        for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(line)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
    return True


def refuse_other_hosts(event: str, arguments: tuple) -> None:
    """An audit hook: names are not looked up and other hosts are not reached."""
    if event == "socket.connect":
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else "localhost"
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    name = host.decode() if isinstance(host, bytes) else host
    if name not in (None, "", "localhost", "::1", socket.gethostname()) and not str(name).startswith("127."):
        raise OSError(f"notebooks run without a network here, and this one asked for {name!r}")


def empty_directory() -> None:
    """Makes an empty directory the current one until the process ends."""
    folder = tempfile.mkdtemp(prefix="notebook-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chdir(folder)


if __name__ == "__main__":
    sys.path[0] = ""  # as in a notebook: the current directory, not the folder of this file
    own_network()
    sys.addaudithook(refuse_other_hosts)
    empty_directory()
    from ipykernel import kernelapp

    kernelapp.launch_new_instance()
