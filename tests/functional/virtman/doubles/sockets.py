"""The double of ``virtman.privileged.sockets``."""

from __future__ import annotations

from tests.functional.virtman.doubles.devices import Double


class Connections(Double):
    """Connections below sessions."""

    def end(self, program: str, ip: str, port: int) -> int:
        ended = [one for one in self.kernel.sessions if one.key[:2] == (ip, port)]
        for one in ended:
            one.is_cut = True
        return len(ended)
