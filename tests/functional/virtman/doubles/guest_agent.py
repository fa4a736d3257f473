"""QEMU's guest agent, as its channel shows it: what an earlier one asked is answered first."""

import json
from pathlib import Path
from socket import SocketIO

from tests.functional.virtman.doubles.listening import Listening


class GuestAgent(Listening):
    """Answers one after the other at a socket.

    :ivar users: who is logged in
    :ivar early: what it still says of earlier questions
    :ivar refusal: why it does not tell; empty if it does
    """

    def __init__(self, path: Path, users: tuple[str, ...] = ()) -> None:
        self.users = users
        self.early = b'{"return": 7}\n'
        self.refusal = ""
        super().__init__(path)

    def _talk(self, file: SocketIO) -> None:
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
