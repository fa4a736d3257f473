"""Running a command in a node: the client of execd, which never outwaits the node's life."""

import json
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lab.errors import LabError
from lab.processes import Process

PORT = 7000


@dataclass(frozen=True)
class Result:
    """How a command ended; a negative status is the signal that ended it."""

    status: int
    stdout_bytes: bytes
    stderr_bytes: bytes

    @property
    def stdout(self) -> str:
        """What it wrote, as text."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """What it complained, as text."""
        return self.stderr_bytes.decode(errors="replace")


@contextmanager
def lifeline(process: Process | None) -> Iterator[int]:
    """Give a file descriptor that becomes readable when the process ends.

    Raises ProcessLookupError if there is no such process any more.
    """
    if process is None:
        raise ProcessLookupError
    pidfd = os.pidfd_open(process.pid)
    try:
        if not process.alive():
            raise ProcessLookupError
        yield pidfd
    finally:
        os.close(pidfd)


class Conversation:
    """A connection to execd, given up at a deadline or when the node's process ends.

    A node that loses its power sends no reset, so its process is watched
    together with the socket. Raises TimeoutError and ProcessLookupError.
    """

    def __init__(self, sock: socket.socket, pidfd: int, timeout: float):
        self._sock = sock
        self._pidfd = pidfd
        self._end = time.monotonic() + timeout
        self._buffer = b""
        sock.setblocking(False)

    def connect(self, address: str) -> None:
        """Reach execd."""
        self._sock.connect_ex((address, PORT))
        self._wait(select.POLLOUT)
        error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))

    def send(self, data: bytes) -> None:
        """Send all of it."""
        view = memoryview(data)
        while view:
            self._wait(select.POLLOUT)
            view = view[self._sock.send(view) :]

    def receive_line(self) -> bytes:
        """Return the next line, without its end."""
        while b"\n" not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def receive(self, size: int) -> bytes:
        """Return exactly so many bytes."""
        parts, missing = [self._buffer[:size]], size - len(self._buffer)
        self._buffer = self._buffer[size:]
        while missing > 0:
            self._more()
            parts.append(self._buffer[:missing])
            self._buffer, missing = self._buffer[missing:], missing - len(self._buffer)
        return b"".join(parts)

    def _more(self) -> None:
        self._wait(select.POLLIN)
        data = self._sock.recv(1 << 20)
        if not data:
            raise ConnectionResetError("the connection was closed before the answer")
        self._buffer += data

    def _wait(self, event: int) -> None:
        poll = select.poll()
        poll.register(self._sock, event)
        poll.register(self._pidfd, select.POLLIN)
        left = self._end - time.monotonic()
        ready = poll.poll(max(0, left * 1000))
        if not ready:
            raise TimeoutError
        if any(fd == self._pidfd for fd, _ in ready):
            raise ProcessLookupError("the node's process ended")


def exchange(
    talk: Conversation,
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: str = "/",
    log: str | None = None,
) -> dict[str, Any]:
    """Send one request and return the header of its answer."""
    request = {"argv": list(argv), "env": dict(env or {}), "cwd": cwd}
    request |= {"stdin": len(stdin), "log": log}
    talk.send(json.dumps(request).encode() + b"\n" + stdin)
    answer = json.loads(talk.receive_line())
    if not isinstance(answer, dict):
        raise LabError(f"execd answered {answer!r}")
    return answer
