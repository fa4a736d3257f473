"""The double of ``virtman.privileged.sockets``."""

from __future__ import annotations

from tests.functional.virtman.doubles.devices import Double


class Connections(Double):
    """Connections below sessions."""

    def end(self, program: str, ip: str, port: int, own: int) -> int:
        there = (one for one in self.kernel.sessions if not one.is_cut)
        ended = [one for one in there if (*one.key[:2], one.own_port) == (ip, port, own)]
        for one in ended:
            one.is_cut = True
        return len(ended)
