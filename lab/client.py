"""A light client of Volt's REST API: many requests in flight from one thread.

Libraries cost several times as much for a request, and what the client takes of a small
machine's processors is not there for Volt.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class ConnectionLost(Exception):
    """Volt went away before it had answered: whether it acted is not known."""


@dataclass(frozen=True)
class Answer:
    """What Volt said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body's content; None if it is empty."""
        return json.loads(self.body) if self.body else None

    def __str__(self) -> str:
        return f"{self.status} {self.body[:500]!r}"


class Client:
    """One connection, kept open: one request at a time.

    ``token`` is the bearer token that each request shows.
    """

    def __init__(self, address: str, port: int, token: str = "") -> None:
        self._address, self._port = address, port
        self._access = f"Authorization: Bearer {token}\r\n" if token else ""
        self._connection: _Connection | None = None

    async def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Return the answer, whatever its status; raises ConnectionLost.

        A body of bytes is sent as it is, any other as JSON.
        """
        kind, content = _encoded(body)
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._address}:{self._port}\r\n{self._access}"
            f"{more}Content-Type: application/{kind}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        try:
            connection = await self._connected()
            return await connection.exchange(head.encode() + content)
        except OSError as err:
            self.close()
            raise ConnectionLost(str(err)) from err

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _connected(self) -> "_Connection":
        if self._connection is None or self._connection.closed:
            loop = asyncio.get_running_loop()
            _, self._connection = await loop.create_connection(
                _Connection, self._address, self._port
            )
        return self._connection


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.closed = False
        self._read = bytearray()
        self._answer: asyncio.Future[Answer] | None = None

    async def exchange(self, request: bytes) -> Answer:
        self._read.clear()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        answer = _parse(self._read)
        if answer is not None and self._answer is not None and not self._answer.done():
            if answer.headers.get("connection") == "close":
                self.closed = True
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("Volt closed the connection"))


def _encoded(body: object) -> tuple[str, bytes]:
    """Return a body's media type, less what is before the slash, and its bytes."""
    if isinstance(body, bytes):
        return "octet-stream", body
    return "json", b"" if body is None else json.dumps(body).encode()


def _parse(data: bytearray) -> Answer | None:
    """Return the answer once all of it is there."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return None
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if len(body) < int(headers.get("content-length", 0)):
        return None
    return Answer(int(status.split(" ", 2)[1]), headers, bytes(body))
