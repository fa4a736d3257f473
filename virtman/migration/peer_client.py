"""What a host asks of another one's agent, over TLS: the destination of a move, or its source."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import ssl
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

import zstandard

from virtman.coordinator.interface import Coordinator
from virtman.errors import (
    CoordinatorUnreachable,
    MoveGarbled,
    PeerUnreachable,
    PeerUntrusted,
    VirtmanError,
    from_code,
)
from virtman.migration.tls import Credentials, name_of
from virtman.model.handover import Offer, Piece, Standing

_LEVEL = 1
"""Of compression: the fastest."""


class Peers:
    """Other hosts' agents.

    :param timeout: seconds that an answer may take
    """

    def __init__(self, coordinator: Coordinator, credentials: Credentials, timeout: float) -> None:
        self.coordinator = coordinator
        self.credentials = credentials
        self.timeout = timeout
        self._known: dict[str, tuple[str, int]] = {}

    def peer(self, host: str) -> Peer:
        """Return another host's agent; nothing is sent yet."""
        return Peer(host, self)

    def check_known(self, host: str) -> None:
        """Raise PeerUnknown if Volt knows of no certificate of a host."""
        self.coordinator.listener(host)

    def address(self, host: str) -> tuple[str, int]:
        """Return where a host's agent listens; what Volt said last, while Volt is away.

        :raises PeerUnknown: if Volt knows of no such host
        """
        try:
            self._known[host] = self.coordinator.listener(host)
        except CoordinatorUnreachable:
            if host not in self._known:
                raise
        return self._known[host]


class Peer:
    """One other host's agent, over a connection that is kept; for one thread.

    Each call may be repeated with the same outcome as once.
    """

    def __init__(self, host: str, peers: Peers) -> None:
        self.host = host
        self.peers = peers
        self._connection: _Connection | None = None

    def offer(self, vm: str, offer: Offer, within: float = math.inf) -> Standing:
        """Begin a round of a VM's data.

        :param within: seconds that the answer may take, if that is less than others may
        """
        return Standing(**self._call("PUT", _arrival(vm), json.dumps(asdict(offer)), within))

    def send(self, vm: str, piece: Piece, content: bytes) -> int:
        """Send part of a round; return how many bytes that took on the way."""
        words = asdict(piece) | {"runs": ",".join(f"{at}+{size}" for at, size in piece.runs)}
        packed = zstandard.compress(content, _LEVEL)
        self._call("POST", f"{_arrival(vm)}/pieces?{urlencode(words)}", packed)
        return len(packed)

    def settle(self, vm: str, move: str, attempt: int) -> None:
        """Have what was sent so far on the other side's disk."""
        body = {"id": move, "attempt": attempt}
        self._call("POST", f"{_arrival(vm)}/settle", json.dumps(body))

    def complete(self, vm: str, move: str, attempt: int) -> None:
        """Have all that was sent on the other side's disk: there is no more."""
        body = {"id": move, "attempt": attempt}
        self._call("POST", f"{_arrival(vm)}/complete", json.dumps(body))

    def activate(self, vm: str, move: str) -> None:
        """Let the VM be the other side's own."""
        self._call("POST", f"{_arrival(vm)}/activate", json.dumps({"id": move}))

    def drop(self, vm: str, move: str) -> None:
        """Have the other side forget what was sent."""
        self._call("DELETE", f"{_arrival(vm)}?{urlencode({'id': move})}")

    def sends(self, move: str) -> bool:
        """Tell whether the other side still knows a move that it began."""
        return bool(self._call("GET", f"/v1/moves/{move}")["known"])

    def layer(self, name: str, at: int, size: int) -> bytes:
        """Return a layer's bytes from ``at`` on: so many of them.

        :raises LayerUnknown: if the other side has none
        :raises LayerComing: if it makes the layer, and has not come so far
        :raises MoveGarbled: if it has other ones
        """
        packed = self._answer("GET", f"/v1/layers/{name}?{urlencode({'at': at})}")
        try:
            # the frame says what it grows to, and is taken at its word
            if zstandard.frame_content_size(packed) != size:
                raise MoveGarbled(f"layer {name} is not as long there as it should be")
            return zstandard.decompress(packed, size)
        except zstandard.ZstdError as err:
            raise MoveGarbled(f"layer {name}: what came cannot be unpacked: {err}") from err

    def layer_length(self, name: str) -> int:
        """Return how many bytes a layer has that the other side has made, or makes.

        :raises LayerUnknown: if there is none
        :raises LayerComing: if that is not known yet
        """
        return int(self._call("GET", f"/v1/layers/{name}/length")["length"])

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(
        self, method: str, path: str, body: str | bytes | None = None, within: float = math.inf
    ) -> Any:
        text = self._answer(method, path, body, within)
        return json.loads(text) if text else None

    def _answer(
        self, method: str, path: str, body: str | bytes | None = None, within: float = math.inf
    ) -> bytes:
        try:
            status, text = self._ask(method, path, body, min(within, self.peers.timeout))
        except PeerUntrusted:
            self.close()
            raise
        except ssl.SSLCertVerificationError as err:
            self.close()
            raise PeerUntrusted(
                f"host {self.host} shows no good certificate ({err.verify_message}): check the "
                "clocks of both hosts, and that both speak to one Volt"
            ) from err
        except (OSError, http.client.HTTPException) as err:
            self.close()
            raise PeerUnreachable(
                f"the agent of host {self.host} does not answer ({err or type(err).__name__}): "
                "check that it runs and that [peers] ip there can be reached from here"
            ) from err
        if status < 400:
            return text
        raise _refusal(self.host, status, text)

    def _ask(
        self, method: str, path: str, body: str | bytes | None, within: float
    ) -> tuple[int, bytes]:
        was_kept = self._connection is not None
        try:
            if self._connection is None:
                where = self.peers.address(self.host)
                context = self.peers.credentials.client()
                self._connection = _Connection(self.host, where, context)
            self._connection.wait(within)
            self._connection.request(method, path, body)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (ConnectionError, ssl.SSLEOFError):
            self.close()
            if was_kept:  # and was ended just before we used it
                return self._ask(method, path, body, within)
            raise


class _Connection(http.client.HTTPSConnection):
    """A connection to a host, not to a name of DNS."""

    def __init__(self, name: str, where: tuple[str, int], context: ssl.SSLContext) -> None:
        super().__init__(*where, context=context)
        self.name = name

    def wait(self, seconds: float) -> None:
        """Wait so long for a connection and for answers, from now on."""
        self.timeout = seconds
        if self.sock is not None:
            self.sock.settimeout(seconds)

    def connect(self) -> None:
        super().connect()
        assert isinstance(self.sock, ssl.SSLSocket)
        named = name_of(self.sock)
        if named != self.name:
            raise PeerUntrusted(
                f"at {self.host}:{self.port} should be host {self.name}, but there is {named}: "
                "check [peers] ip and [agent] host of both"
            )


def _refusal(host: str, status: int, text: bytes) -> VirtmanError:
    error: Mapping[str, str] = {}
    with contextlib.suppress(ValueError, KeyError, TypeError):
        error = json.loads(text)["error"]
    if not error:
        return PeerUnreachable(f"what answers for host {host} is no agent (status {status})")
    return from_code(error["code"], f"host {host}: {error['message']}")


def _arrival(vm: str) -> str:
    return f"/v1/arrivals/{vm}"
