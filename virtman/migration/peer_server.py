"""What other hosts may ask of this agent, over TLS, and nothing else.

Whoever shows no certificate of Volt's gets no connection. The host that a certificate names may
send VMs here, and ask about those that come from there. It may read layers that this node has made:
so may every host that attaches them.
"""

from __future__ import annotations

import logging
import ssl
from typing import Any

import zstandard
from cheroot.ssl import builtin
from werkzeug.wrappers import Request

from virtman.errors import InvalidRequest, VirtmanError
from virtman.migration.commits import Commits
from virtman.migration.incoming import Arrivals
from virtman.migration.outgoing import Moves
from virtman.migration.tls import Credentials, name_of
from virtman.model.dirty import PORTION
from virtman.model.handover import Offer, Piece
from virtman.periodic import Periodic
from virtman.rest import Answer, Rest, body_of
from virtman.server import Server

LOG = logging.getLogger(__name__)

ROUTES = (
    ("PUT", "/v1/arrivals/<vm>", "offer"),
    ("POST", "/v1/arrivals/<vm>/pieces", "take"),
    ("POST", "/v1/arrivals/<vm>/settle", "settle"),
    ("POST", "/v1/arrivals/<vm>/complete", "complete"),
    ("POST", "/v1/arrivals/<vm>/activate", "activate"),
    ("DELETE", "/v1/arrivals/<vm>", "drop"),
    ("GET", "/v1/moves/<move>", "knows"),
    ("GET", "/v1/layers/<layer>", "layer"),
    ("GET", "/v1/layers/<layer>/length", "layer_length"),
)

_PEER = "virtman.peer"
_THREADS = 8
_GREETING = 3.0
"""Seconds for a handshake: while it lasts nobody else is let in."""

_DIGITS = 19
_LEVEL = 1
"""Of compression: the fastest."""

_SILENCE = 60
_AGAIN = 5.0


class Remote(Rest):
    """A WSGI application over the moves from and to this node, and the layers that it has made."""

    routes = ROUTES
    max_body = PORTION + PORTION // 2

    def __init__(self, moves: Moves, arrivals: Arrivals, commits: Commits) -> None:
        super().__init__()
        self.moves = moves
        self.arrivals = arrivals
        self.commits = commits

    def offer(self, request: Request, vm: str) -> Answer:
        """Begin a round of a VM's data."""
        body = body_of(
            request, version=int, id=str, image=str, size=int, origin=str, quota=int, round=int,
            live=bool, begins=bool,
        )  # fmt: skip
        standing = self.arrivals.offer(_peer(request), vm, _made(Offer, body))
        return 200, vars(standing)

    def take(self, request: Request, vm: str) -> Answer:
        """Write part of a round."""
        words: dict[str, Any] = request.args.to_dict()
        try:
            words["runs"] = tuple(
                (int(at), int(size))
                for at, _, size in (run.partition("+") for run in words["runs"].split(","))
            )
            words |= {"attempt": int(words["attempt"]), "end": int(words["end"])}
        except (KeyError, ValueError) as err:
            raise InvalidRequest(f"the query is none of a piece: {err}") from err
        piece = _made(Piece, words)
        self.arrivals.take(_peer(request), vm, piece, request.get_data())
        return 204, None

    def settle(self, request: Request, vm: str) -> Answer:
        """Have what came so far on the disk."""
        self.arrivals.settle(_peer(request), vm, *_attempt_of(request))
        return 204, None

    def complete(self, request: Request, vm: str) -> Answer:
        """Have all that came on the disk."""
        self.arrivals.complete(_peer(request), vm, *_attempt_of(request))
        return 204, None

    def activate(self, request: Request, vm: str) -> Answer:
        """Let a VM be this host's own."""
        body = body_of(request, id=str)
        if not body:
            raise InvalidRequest('the body must be {"id": "<move>"}')
        self.arrivals.activate(_peer(request), vm, body["id"])
        return 204, None

    def drop(self, request: Request, vm: str) -> Answer:
        """Forget what was sent."""
        self.arrivals.drop(_peer(request), vm, request.args.get("id", ""))
        return 204, None

    def knows(self, request: Request, move: str) -> Answer:
        """Tell whether this host still sends a VM by a move."""
        return 200, {"known": self.moves.knows(move)}

    def layer(self, request: Request, layer: str) -> Answer:
        """Return some of a layer's bytes, compressed."""
        at = request.args.get("at", "")
        if not (at.isascii() and at.isdigit() and len(at) < _DIGITS):
            raise InvalidRequest(f"at {at!r}: must be the number of a byte")
        return 200, iter((zstandard.compress(self.commits.part_of(layer, int(at)), _LEVEL),))

    def layer_length(self, request: Request, layer: str) -> Answer:
        """Return how many bytes a layer has."""
        return 200, {"length": self.commits.length_of(layer)}


class Listener:
    """Takes other agents' calls, once there is a certificate.

    :ivar port: where it listens
    """

    def __init__(self, remote: Remote, credentials: Credentials) -> None:
        self.remote = remote
        self.credentials = credentials
        self.port = credentials.port
        self._server: Server | None = None
        self._rounds = Periodic("listener", self._turn, _AGAIN)

    def start(self) -> None:
        """Begin; without Volt's certificate it is asked for until it comes."""
        self._rounds.start()

    def stop(self) -> None:
        """End all connections."""
        self._rounds.stop()
        if self._server is not None:
            self._server.stop()

    def open(self) -> None:
        """Listen from now on; connections are served after ``start``."""
        assert self.credentials.ip  # else there is nowhere to listen
        address = (self.credentials.ip, self.port)
        server = Server(address, self.remote, _THREADS, _SILENCE)
        server.ssl_adapter = _Tls(self.credentials.server())
        server.prepare()
        self.port = server.bind_addr[1]
        self._server = server

    def _turn(self) -> None:
        if self._server is None:
            try:
                self.open()
            except (VirtmanError, OSError) as err:
                LOG.warning("not listening to other agents yet: %s", err)
                return
        if self._server is not None and not self._rounds.is_stopped:
            LOG.info("listening to other agents on %s:%s", self.credentials.ip, self.port)
            self._server.serve()  # until ``stop``
            self._rounds.stop()


class _Tls(builtin.BuiltinSSLAdapter):
    """Lets in who has a certificate of Volt's, and says who that is."""

    def __init__(self, context: ssl.SSLContext) -> None:
        # Not the base class's: it makes a context of its own, of files.
        self.context = context

    def wrap(self, sock: Any) -> tuple[Any, dict[str, Any]]:
        sock.settimeout(_GREETING)
        connection, environ = super().wrap(sock)  # type: ignore[no-untyped-call]
        connection.settimeout(_SILENCE)
        return connection, environ

    def get_environ(  # type: ignore[override]  # its stubs are wrong
        self, sock: ssl.SSLSocket
    ) -> dict[str, Any]:
        return {"wsgi.url_scheme": "https", "HTTPS": "on", _PEER: name_of(sock)}


def _peer(request: Request) -> str:
    return str(request.environ[_PEER])


def _attempt_of(request: Request) -> tuple[str, int]:
    body = body_of(request, id=str, attempt=int)
    if len(body) < 2:
        raise InvalidRequest('the body must be {"id": "<move>", "attempt": <number>}')
    return body["id"], body["attempt"]


def _made(kind: Any, words: dict[str, Any]) -> Any:
    try:
        return kind(**words)
    except TypeError as err:
        raise InvalidRequest(f"it has not what belongs to it: {err}") from err
