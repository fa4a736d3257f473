"""How agents come to know each other: certificates for them, and where each listens."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from volt import ca
from volt.db.peers import PeerRows
from volt.errors import ListenerUnknown
from volt.model.hosts import Certificate, Listener


class Peers:
    """What hosts ask to speak to each other; safe to share between threads.

    ``lifetime`` is for how long a certificate holds.
    """

    def __init__(
        self,
        rows: PeerRows,
        lifetime: timedelta,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._rows = rows
        self._lifetime = lifetime
        self._clock = clock

    def certify(self, host: str, request: str, listener: Listener | None) -> Certificate:
        """Sign a host's certificate, and note where its agent listens, unless it only asks others.

        The authority itself is made when the first host asks. Raises
        CertificateRequestInvalid.
        """
        now = self._clock()
        mine = self._rows.authority() or self._rows.found(ca.found(now), now)
        expires = now + self._lifetime
        signed = ca.sign(mine, request, host, now, expires)
        if listener is not None:
            self._rows.enrol(listener, expires)
        return Certificate(signed, mine.certificate, expires)

    def listener(self, host: str) -> Listener:
        """Return where a host's agent listens; raises ListenerUnknown without a certificate."""
        found = self._rows.listener(host, self._clock())
        if found is None:
            raise ListenerUnknown(
                f"host {host} takes no calls of other hosts: its agent has not asked for a "
                "certificate of late; set [peers] ip there and see that it runs"
            )
        return found

    def revoke(self, host: str) -> None:
        """Forget a host: others neither call it nor listen to it until it has asked again."""
        self._rows.forget(host)
