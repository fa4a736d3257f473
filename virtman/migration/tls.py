"""How this agent proves to other hosts' agents who it is, and how it knows them.

Volt is the authority: it signs a certificate that names this host, on this host's token. Both
ends of a connection show theirs, and each looks at the name in the other's.
"""

from __future__ import annotations

import logging
import ssl
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from virtman import atomic_file
from virtman.coordinator.interface import Coordinator
from virtman.errors import PeersOff, PeerUntrusted, VirtmanError
from virtman.periodic import Periodic

LOG = logging.getLogger(__name__)

_LOOK = 60.0


class Credentials:
    """This host's key and certificate, in a file each that nobody else reads.

    :param folder: of the files; survives a reboot
    :param ip: where this agent listens; empty if it does not, and so has no certificate; None for
        a host that only asks others
    """

    def __init__(
        self, coordinator: Coordinator, folder: Path, ip: str | None, port: int = 0
    ) -> None:
        self.coordinator = coordinator
        self.ip = ip
        self.port = port
        self._own = folder / "peer.pem"
        self._authority = folder / "authority.pem"
        # One asks Volt, others wait for what it gets.
        self._asking = threading.Lock()
        self._server: ssl.SSLContext | None = None

    def client(self) -> ssl.SSLContext:
        """Return what a connection to another agent is made with.

        :raises PeersOff: if this agent does not listen
        """
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def server(self) -> ssl.SSLContext:
        """Return what connections of other agents are taken with; it gets new certificates."""
        self._server = self._context(ssl.PROTOCOL_TLS_SERVER)
        return self._server

    def renew(self) -> None:
        """Have Volt sign another certificate if this one has come to a good age."""
        with self._asking:
            if not self._is_due():
                return
            self._ask()
            if self._server is not None:
                self._load(self._server)
        LOG.info("Volt has certified this host to others")

    def _context(self, protocol: int) -> ssl.SSLContext:
        if self.ip == "":
            raise PeersOff(
                "VMs move between hosts whose agents listen to each other: set [peers] ip on both"
            )
        self.renew()
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # a host's name is no name of DNS: see ``name_of``
        context.verify_mode = ssl.CERT_REQUIRED
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self._own)
        context.load_verify_locations(self._authority)

    def _is_due(self) -> bool:
        from virtman.migration import certificates  # noqa: PLC0415 - only who listens needs its library

        if not (self._own.exists() and self._authority.exists()):
            return True
        return not certificates.serves(
            self._own.read_bytes(), self.coordinator.host, datetime.now(UTC)
        )

    def _ask(self) -> None:
        from virtman.migration import certificates  # noqa: PLC0415

        key, request = certificates.request()
        listens = (self.ip, self.port) if self.ip else None
        certificate, authority = self.coordinator.certify(request, listens)
        atomic_file.write(self._authority, authority.encode())
        atomic_file.write(self._own, (key + certificate).encode())


def renewal(credentials: Credentials) -> Periodic:
    """Return what keeps the certificate young."""

    def turn() -> None:
        try:
            credentials.renew()
        except (VirtmanError, OSError) as err:
            LOG.warning("certificate of this host: %s", err)

    return Periodic("renewal", turn, _LOOK, first=_LOOK)


def name_of(connection: ssl.SSLSocket) -> str:
    """Return the host that the other end's certificate, which has been verified, names.

    :raises PeerUntrusted: if it names none
    """
    certificate: Any = connection.getpeercert() or {}
    for ((kind, value),) in certificate.get("subject", ()):
        if kind == "commonName":
            return str(value)
    raise PeerUntrusted("a certificate of Volt's that names no host")
