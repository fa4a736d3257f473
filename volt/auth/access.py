"""Who asks, whether they may, and whether they ask too often: one answer for all routes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, Protocol
from wsgiref.types import WSGIEnvironment

from oslo_policy.policy import Enforcer

from volt.auth.ratelimit import Rates
from volt.db.tokens import PREFIX, Token, Tokens, digest
from volt.errors import Forbidden, Unauthenticated

FRESH = 5.0  # seconds for which a worker believes what it read of all tokens
WHO = "volt.who"  # under which a request's environment names who asks
HOST = "volt.host"  # and the host that they speak for, if there is one
DECISIONS = 32768  # kept a worker: three for each of 10,000 hosts


@dataclass(frozen=True)
class Principal:
    """Who asks; ``host`` is whom a host's token speaks for, ``expires`` a time of the epoch."""

    name: str
    roles: tuple[str, ...]
    host: str | None
    expires: float | None = None

    def credentials(self) -> dict[str, Any]:
        """Return what rules see; without a host there is none, since None would be a name."""
        own = {"host": self.host} if self.host else {}
        return {"roles": list(self.roles), "user": self.name} | own


class Identities(Protocol):
    """Where it is known whose token is whose."""

    def known(self, token: str) -> Principal | None:
        """Return whose token it is, if this worker knows."""

    def ask(self, token: str) -> Principal | None:
        """Find out whose token it is."""


class StoredTokens:
    """The tokens that Volt itself gave out.

    A worker has all of them in memory and reads them again when they are ``fresh`` seconds
    old: with 10,000 hosts that is far less work than a look-up for each heartbeat.
    """

    def __init__(
        self, tokens: Tokens, fresh: float = FRESH, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokens = tokens
        self._fresh = fresh
        self._clock = clock
        self._read_at = -fresh
        self._reading = Lock()  # only one reads; others go on with what was known
        self._principals: dict[str, Principal] = {}

    def known(self, token: str) -> Principal | None:
        """Return whose token it is, if it was there at the last look."""
        if self._clock() - self._read_at >= self._fresh and self._reading.acquire(blocking=False):
            try:
                began = self._clock()
                old, found = self._principals, self._tokens.by_digest()
                self._principals = {
                    key: old.get(key) or _principal(one) for key, one in found.items()
                }
                self._read_at = began
            finally:
                self._reading.release()
        return self._principals.get(digest(token))

    def ask(self, token: str) -> Principal | None:
        """Look a token up that may have been given out since."""
        found = self._tokens.find(digest(token))
        return None if found is None else _principal(found)


class BothTokens:
    """Tokens that Volt gave out, which begin as such, beside those that others did."""

    def __init__(self, own: Identities, others: Identities) -> None:
        self._own = own
        self._others = others

    def known(self, token: str) -> Principal | None:
        """Return whose token it is, if this worker knows."""
        return self._of(token).known(token)

    def ask(self, token: str) -> Principal | None:
        """Find out whose token it is."""
        return self._of(token).ask(token)

    def _of(self, token: str) -> Identities:
        return self._own if token.startswith(PREFIX) else self._others


class Access:
    """The one way in."""

    def __init__(self, identities: Identities, enforcer: Enforcer, rates: Rates) -> None:
        self._identities = identities
        self._rates = rates

        @lru_cache(DECISIONS)
        def allowed(rule: str, who: Principal, host: str | None) -> bool:
            # "" is nobody's name.
            return bool(enforcer.enforce(rule, {"host": host or ""}, who.credentials()))

        self._allowed = allowed

    def admit(self, rule: str, environ: WSGIEnvironment, host: str | None) -> None:
        """Let a request pass that the rule guards, about this host or none.

        Notes in ``environ`` who asks, and for which host they speak. Raises Unauthenticated,
        TooFast, Forbidden.
        """
        who = self._who(environ)
        environ[WHO], environ[HOST] = who.name, who.host
        self._rates.take(who.name)
        if not self._allowed(rule, who, host):
            about = f" for host {host}" if host else ""
            raise Forbidden(f"{who.name} may not do this{about}: rule {rule} does not allow it")

    def _who(self, environ: WSGIEnvironment) -> Principal:
        address = f"address {environ.get('REMOTE_ADDR')}"
        token = _token(environ)
        who = self._identities.known(token) if token else None
        if token and who is None:
            # Guesses cost a question each, so that too many are not even asked about.
            self._rates.check(address)
            who = self._identities.ask(token)
        if who is None or (who.expires is not None and who.expires <= time.time()):
            self._rates.take(address)
            raise Unauthenticated(
                "who asks is not known: send a valid token as Authorization: Bearer <token>"
            )
        return who


def _token(environ: WSGIEnvironment) -> str:
    scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    return str(
        token if scheme.lower() == "bearer" else environ.get("HTTP_X_AUTH_TOKEN", "")
    ).strip()


def _principal(token: Token) -> Principal:
    expires = token.expires_at.timestamp() if token.expires_at else None
    return Principal(f"{token.host or token.role}/{token.name}", (token.role,), token.host, expires)
