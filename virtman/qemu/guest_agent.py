"""Asks QEMU's guest agent, a program in the guest, who is logged in.

It answers whoever has its channel: a socket of QEMU's, which serves one at a time. What an earlier
one asked may still be answered, so each conversation begins with a number that comes back.
"""

from __future__ import annotations

import json
import secrets
import socket
from typing import Any, BinaryIO

from virtman.errors import SessionsOpen

_PATIENCE = 10.0
_MARK = b"\xff"  # before what answers the number, and before a question nobody waits for any more
_MOST = 1 << 20  # bytes of an answer
_EARLIER = 10  # answers to somebody before, at most


def users(path: str) -> list[str]:
    """Return the names of those who are logged in, as the guest keeps them.

    :param path: of the agent's channel
    :raises SessionsOpen: if the agent does not tell
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE)
            connection.connect(path)
            with connection.makefile("rb") as answers:
                _agree(connection, answers)
                connection.sendall(_question("guest-get-users"))
                found = _answer(answers.readline(_MOST))
        return sorted({str(one["user"]) for one in found})
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as err:
        raise SessionsOpen(
            f"the guest agent at {path} does not tell who is logged in ({err}): check that nobody "
            "else uses its channel, and that this account may; or force it"
        ) from err


def _agree(connection: socket.socket, answers: BinaryIO) -> None:
    """Have all answers that come from now on be of this conversation."""
    number = secrets.randbelow(1 << 31)
    connection.sendall(_MARK + _question("guest-sync-delimited", id=number))
    for _ in range(_EARLIER):
        line = answers.readline(_MOST)
        if not line:
            break
        # the mark itself is answered too: it is no JSON
        if line.startswith(_MARK) and _answer(line[1:]) == number:
            return
    raise OSError("it answers something else")


def _question(command: str, **arguments: object) -> bytes:
    return json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n"


def _answer(line: bytes) -> Any:
    if not line:
        raise OSError("it has closed the connection")
    found = json.loads(line)
    if "return" not in found:
        raise OSError(found["error"]["desc"])
    return found["return"]
