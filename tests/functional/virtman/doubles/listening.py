"""What answers one after the other at a socket, on a thread of its own."""

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from socket import SocketIO


class Listening(ABC):
    """Listens from the start; a double says in ``_talk`` how it answers who is connected."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    @abstractmethod
    def _talk(self, file: SocketIO) -> None:
        """Answer what somebody asks, until he goes."""

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with (
                contextlib.suppress(OSError),  # who asked may not wait for all of it
                connection,
                connection.makefile("rwb", buffering=0) as file,
            ):
                self._talk(file)
