"""Two lists of calls, taken one by one in step: on two cores, or in turn."""

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import torch


def in_turn(first: Iterator[Callable], second: Iterator[Callable]) -> None:
    for pair in zip(first, second):
        for call in pair:
            call()


def side_by_side(first: Iterator[Callable], second: Iterator[Callable]) -> None:
    """Two threads, one core each: both finish their nth call before either starts its next.

    torch's own threads are set to one meanwhile: what they would share is too small to be worth sharing.
    """

    def run(calls, own: SimpleQueue, other: SimpleQueue):
        try:
            with torch.inference_mode():
                for call in calls:
                    call()
                    other.put(None)
                    if error := own.get():
                        return error
        except BaseException as error:  # KeyboardInterrupt too: the other thread must not wait for ever
            other.put(error)
            return error

    threads, queues = torch.get_num_threads(), (SimpleQueue(), SimpleQueue())
    torch.set_num_threads(1)
    try:
        helper = threading.Thread(target=run, args=(second, *queues[::-1]))
        helper.start()
        error = run(first, *queues)
        helper.join()
    finally:
        torch.set_num_threads(threads)
    if error:
        raise error
