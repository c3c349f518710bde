"""A TPU through torch_xla: everything that the course asks of it, so that another backend can take its place."""

import torch


class Absent(RuntimeError):
    """The device is not here; the message says why."""


class Broken(Absent):
    """The device seems to be here but cannot be used, which the reader should hear of."""


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def start() -> tuple[torch.device, str]:
    """torch_xla's default device and the hardware's name; :class:`Absent` where it is missing."""
    try:
        import torch_xla
        import torch_xla.runtime

        return torch_xla.device(), torch_xla.runtime.device_type() or "unknown hardware"
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "torch_xla":
            raise Absent("torch_xla is not installed") from error
        raise Broken(f"torch_xla does not start ({first_line(error)})") from error
    except Exception as error:  # a wheel for another torch, or a TPU in use, fails in any of many ways
        raise Broken(f"torch_xla does not start ({first_line(error)})") from error


def seed(n: int) -> None:
    """Seed what XLA draws on the device; ``torch.manual_seed`` does not reach it. :class:`Absent` as above."""
    start()
    import torch_xla

    torch_xla.manual_seed(n)


def run(wait: bool = False) -> None:
    """Compile and run what was recorded so far; ``wait``: until all is done, also what was begun before."""
    import torch_xla

    torch_xla.sync()
    if wait:
        torch_xla.core.xla_model.wait_device_ops()
