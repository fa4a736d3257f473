"""QEMU's guest agent, as its channel shows it: what an earlier one asked is answered first."""

import contextlib
import json
import socket
import threading
from pathlib import Path


class GuestAgent:
    """Answers one after the other at a socket.

    :ivar users: who is logged in
    :ivar early: what it still says of earlier questions
    :ivar refusal: why it does not tell; empty if it does
    """

    def __init__(self, path: Path, users: tuple[str, ...] = ()) -> None:
        self.path = str(path)
        self.users = users
        self.early = b'{"return": 7}\n'
        self.refusal = ""
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
                file.write(self.early)
                for line in file:
                    if line.startswith(b"\xff"):
                        file.write(b'{"error": {"class": "GenericError", "desc": "stray"}}\n')
                    asked = json.loads(line.rpartition(b"\xff")[2])
                    file.write(self._answer(asked["execute"], asked["arguments"]))

    def _answer(self, command: str, arguments: dict[str, int]) -> bytes:
        if command == "guest-sync-delimited":
            return b"\xff" + json.dumps({"return": arguments["id"]}).encode() + b"\n"
        if self.refusal:
            error = {"class": "CommandNotFound", "desc": self.refusal}
            return json.dumps({"error": error}).encode() + b"\n"
        found = [{"user": one, "login-time": 1.5} for one in self.users]
        return json.dumps({"return": found}).encode() + b"\n"
