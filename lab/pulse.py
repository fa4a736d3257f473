"""Has the kernels of a bed look for frames a hundred times a second: python -m lab.pulse BED.

When a TAP device has a frame, its kernel first sends SIGIO, and only then says so to whoever polls
it (``tun_net_xmit``). User Mode Linux polls when the signal comes, for edges: if it is quick, it
finds none, and the frame stays where it is until the next one comes. One of some hundreds did, on
Linux 7.2: reads took 200 ms longer then, until TCP sent something again. With a signal every 10 ms
they take so much longer, at most.
"""

import signal
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from lab.errors import NoSuchBed
from lab.processes import Process
from lab.remote import lifeline
from lab.state import State

_EVERY = 0.01
"""Seconds between two signals to a kernel."""

_LOOK = 1.0
"""Seconds between two looks which kernels there are."""


def main(bed: str) -> None:
    """Go on until the bed is gone."""
    with suppress(NoSuchBed):
        while True:
            record = State(bed).read()
            _pulse([node.process for node in record.nodes if node.process is not None], _LOOK)


def _pulse(kernels: list[Process], seconds: float) -> None:
    """Signal the kernels that live, and that have a handler by now: others would end."""
    with ExitStack() as held:
        lines = []
        for kernel in kernels:
            with suppress(ProcessLookupError, FileNotFoundError):
                line = held.enter_context(lifeline(kernel))
                if catches(Path(f"/proc/{kernel.pid}/status").read_text(), signal.SIGIO):
                    lines.append(line)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(_EVERY)
            for line in lines:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(line, signal.SIGIO)


def catches(status: str, number: signal.Signals) -> bool:
    """Tell whether a process has a handler for a signal, by its /proc/PID/status."""
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


if __name__ == "__main__":
    main(sys.argv[1])
