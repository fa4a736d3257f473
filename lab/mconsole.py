"""Asks a node's kernel by User Mode Linux's own console, which answers though its link does not.

A request and the parts of its answer are datagrams (``Documentation/virt/uml``,
``arch/um/drivers/mconsole.h``): numbers of 32 bit, of this machine's order, and up to 512 bytes.
"""

import socket
import struct
import tempfile
from pathlib import Path

_MAGIC, _VERSION = 0xCAFEBABE, 2
_REQUEST = struct.Struct("=III512s")  # magic, version, length, command
_HEAD = struct.Struct("=III")  # error, whether more follows, length
_ROOM = 4096


def ask(console: Path, command: str, timeout: float = 5) -> str:
    """Return what a kernel answers to a command, such as ``sysrq w``.

    :param console: the socket in the kernel's own folder
    :param timeout: seconds for each part of the answer
    :raises OSError: if it does not answer, or refuses the command
    """
    words, parts = command.encode(), list[str]()
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as talk,
    ):
        talk.bind(f"{folder}/answer")  # names without a file are not seen in the bed's network
        talk.settimeout(timeout)
        talk.sendto(_REQUEST.pack(_MAGIC, _VERSION, len(words), words), str(console))
        follows = True
        while follows:
            answer = talk.recv(_ROOM)
            error, follows, length = _HEAD.unpack_from(answer)
            parts.append(answer[_HEAD.size : _HEAD.size + length].decode(errors="replace"))
    if error:
        raise OSError(f"{command}: {''.join(parts)}")
    return "".join(parts)
