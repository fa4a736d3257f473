"""How the agent's APIs are served: by threads that do not keep an agent that is told to stop."""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cheroot import wsgi
from cheroot.workers.threadpool import ThreadPool

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

LOG = logging.getLogger(__name__)

_BACKLOG = 1024
_SOCKET_MODE = 0o660
_PATIENCE = 5
"""Seconds for which a stop waits for requests: what a verb must still do, the stores wait for."""


class Server(wsgi.Server):
    """A WSGI application behind an address and port, or behind the path of a Unix socket.

    :param silence: seconds without a byte of a request after which a connection ends; a request
        that is there may take as long as it takes
    """

    max_request_header_size = 64 * 1024

    def __init__(
        self, address: str | tuple[str, int], api: WSGIApplication, threads: int, silence: int = 60
    ) -> None:
        super().__init__(
            address,
            api,
            request_queue_size=_BACKLOG,
            timeout=silence,
            shutdown_timeout=_PATIENCE,
        )
        self.requests = _Threads(self, min=threads, max=threads)

    def bind_unix_socket(self, bind_addr: Any) -> socket.socket:
        """Make the socket, also where an agent that was killed left one.

        Nobody can connect before the server listens, and by then it is its group's.
        """
        path = Path(bind_addr)
        path.unlink(missing_ok=True)
        made = socket.socket(socket.AF_UNIX)
        made.bind(str(path))
        path.chmod(_SOCKET_MODE)
        self.socket = made
        return made

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        """Write what the server has to say to the log."""
        LOG.log(level, "%s", msg, exc_info=traceback)


class _Threads(ThreadPool):
    """Threads that end with the process, at the latest.

    A verb may hang in the kernel, and wait for parents for minutes: an agent that is told to stop
    must not wait for it.
    """

    def start(self) -> None:
        # threads that a daemon starts are daemons too
        _daemon(super().start).join()

    def stop(self, timeout: float | None = None) -> None:
        """Turn away who waits for a thread, and wait a moment for the others."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.get(block=False).close()
        _daemon(super().stop, None).join(timeout)


def _daemon(target: Callable[..., Any], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread
