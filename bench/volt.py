"""How fast Volt places hosts, what their heartbeats cost, and how soon the dead are out.

One Volt on a database of its own, on this machine; the load comes from this process, over
REST as from hosts.
"""

import asyncio
import math
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path
from typing import Any

from bench.report import Progress, Step
from bench.rows import RowCounter
from bench.usage import Cores, peak_memory
from lab import invariants
from lab.client import Answer, Client
from lab.databases import Mariadb, Postgresql, Server
from lab.volt import Volt

WORKERS = {"postgresql": 4, "mariadb": 4, "sqlite": 1}
SERVERS: dict[str, type[Server]] = {"postgresql": Postgresql, "mariadb": Mariadb}
IN_FLIGHT = 64
REPORTING = 640  # connections with heartbeats: a worker gathers them for a fifth of a second
PROBES = 50  # joins one after the other, whose rows are counted
PROBED_AT = (100, 1000, 10_000)
INTERVAL = 5  # seconds between two heartbeats of a host
EXPIRY = 15
NEVER = 3600  # seconds: longer than the joins take
HELD = 25.0  # seconds of heartbeats
SILENT = 1000
SHOWN = 20  # faults of the trees: more say no more
PATIENCE = 120.0  # seconds until silent hosts must be out
LONGEST = 1800.0  # seconds for the joins: something is wrong if they take longer
IMAGE = "/v1/images/bench"


class Refused(Exception):
    """Volt answered with an error."""


def measure(database: str, hosts: int, progress: Progress) -> dict[str, Any]:
    """Return one entry of ``runs``."""
    with ExitStack() as stack:
        server = stack.enter_context(SERVERS[database]()) if database in SERVERS else None
        url = server.create("volt") if server else _sqlite(stack)
        source = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        run = _Run(database, hosts, server, progress)
        figures = {"database": database, "workers": WORKERS[database], "hosts": hosts}

        def served(expiry: int) -> Volt:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            options = {"heartbeat": {"interval": INTERVAL, "expiry": expiry}}
            return stack.enter_context(Volt(folder, url, WORKERS[database], options))

        # Rows are counted with pauses in which hosts that say nothing would be expired.
        volt = served(NEVER)
        figures |= asyncio.run(run.joins(volt, source.getsockname()[1]))
        volt.kill()
        return figures | asyncio.run(run.life(served(EXPIRY)))


class _Run:
    def __init__(
        self, database: str, hosts: int, server: Server | None, progress: Progress
    ) -> None:
        self._database, self._count, self._progress = database, hosts, progress
        self._server = server
        self._generations: dict[str, int] = {}

    async def joins(self, volt: Volt, source_port: int) -> dict[str, Any]:
        """Let all hosts join, and report once."""
        self._open(volt, IN_FLIGHT)
        await self._create_image(source_port)
        figures = await self._joins()
        self._open(volt, REPORTING)
        hosts = list(self._generations)
        await self._beat(hosts, INTERVAL, [], self._progress.step("first heartbeats", len(hosts)))
        return figures | {"rss_bytes_per_worker": max(map(peak_memory, volt.workers()))}

    async def life(self, volt: Volt) -> dict[str, Any]:
        """Let all hosts report for a while, then some fall silent."""
        self._open(volt, REPORTING)
        beats = await self._heartbeats()
        silent, expired, faults = await self._expiry()
        return {**beats, "silent": silent, "expire_1000_s": expired, "faults": faults}

    def _open(self, volt: Volt, connections: int) -> None:
        self._volt = volt
        self._clients = [volt.client() for _ in range(connections)]

    async def _create_image(self, port: int) -> None:
        iqn = "iqn.2026-11.org.virtman:source"
        source = {"ip": "127.0.0.1", "port": port, "iqn": iqn, "lun": 0}
        body = {"name": "bench", "size": 1 << 30, "source": source}
        await self._ask(self._clients[0], "POST", "/v1/images", body)

    async def _joins(self) -> dict[str, Any]:
        """Let all hosts join, with pauses in which the rows of single joins are counted."""
        step = self._progress.step("joins", self._count)
        took: list[float] = []
        spent, rows, begun = 0.0, dict.fromkeys(map(str, PROBED_AT)), 0
        for stop in sorted({*(n for n in PROBED_AT if n < self._count), self._count}):
            names = [f"h{number:05}" for number in range(begun, stop)]
            begun = stop
            began = time.monotonic()
            async with asyncio.timeout(LONGEST):
                await self._together(names, lambda c, name: self._timed_join(c, name, took, step))
            spent += time.monotonic() - began
            if stop in PROBED_AT and self._server is not None:
                rows[str(stop)] = await self._probe(self._server, stop)
        return {
            "joins_per_s": self._count / spent,
            "join_p99_ms": _p99(took) * 1000,
            "rows_touched": rows,
        }

    async def _probe(self, server: Server, present: int) -> float:
        """Return the rows that one join touches; the hosts are gone afterwards."""
        step = self._progress.step(f"rows at {present:,}", PROBES)
        counter = RowCounter(server, "volt")
        await counter.begin()
        names = [f"probe{number}" for number in range(PROBES)]
        for name in names:
            await self._join(self._clients[0], name)
            step.advance()
        touched = await counter.end()
        for name in names:
            await self._ask(self._clients[0], "DELETE", f"{IMAGE}/hosts/{name}")
            del self._generations[name]
        return touched / PROBES

    async def _heartbeats(self) -> dict[str, Any]:
        hosts = list(self._generations)
        step = self._progress.step("heartbeats", int((HELD / INTERVAL + 1) * len(hosts)))
        await self._beat(hosts, INTERVAL, [], step)  # not measured: Volt has just started
        volt = Cores(self._volt.processes())
        database = Cores(self._server.processes() if self._server else ())
        took: list[float] = []
        began = time.monotonic()
        await self._beat(hosts, HELD, took, step)
        spent = time.monotonic() - began
        shares = volt.used(), database.used()
        return {
            "heartbeats_per_s": len(took) / spent,
            "heartbeat_p99_ms": _p99(took) * 1000,
            "heartbeat_cores": sum(shares),
            "heartbeat_cores_volt": shares[0],
            "heartbeat_cores_database": shares[1],
        }

    async def _expiry(self) -> tuple[int, float | None, list[str]]:
        """Let hosts fall silent; return how many, how late they were out, and what is wrong."""
        hosts = list(self._generations)
        silent = hosts[1 : 2 * min(SILENT, len(hosts) // 2) : 2]  # at all levels of the trees
        living = [host for host in hosts if host not in set(silent)]
        step = self._progress.step("expiry", len(silent))
        await self._together(silent, lambda client, host: self._heartbeat(client, host, []))
        due = time.monotonic() + EXPIRY
        beating = asyncio.create_task(self._beat(living, math.inf, [], None))
        expired = await self._wait_for_expiry(len(living), due, step)
        trees = await self._ask(self._volt.client(), "GET", f"{IMAGE}/trees")
        if beating.done():
            beating.result()  # raises what ended it: the living fell silent too
        beating.cancel()
        faults = islice(invariants.faults(trees, living), SHOWN)
        return len(silent), expired, list(faults)

    async def _wait_for_expiry(self, left: int, due: float, step: Step) -> float | None:
        client, present = self._volt.client(), len(self._generations)
        while time.monotonic() < due + PATIENCE:
            hosts = (await self._ask(client, "GET", IMAGE))["hosts"]
            step.advance(present - hosts)
            present = hosts
            if hosts <= left:
                return max(0.0, time.monotonic() - due)
            await asyncio.sleep(0.1)
        return None

    async def _beat(
        self, hosts: Sequence[str], seconds: float, took: list[float], step: Step | None
    ) -> None:
        """Send each host's heartbeats in its turn for so long, whatever the answers take.

        Each host stays on one connection, as agents do.
        """
        began, rate = time.monotonic(), len(hosts) / INTERVAL
        total = math.inf if seconds == math.inf else round(rate * seconds)

        async def go_on(client: Client, mine: range) -> None:
            for turn in (first + host for first in count(0, len(hosts)) for host in mine):
                if turn >= total:
                    break
                await asyncio.sleep(max(0.0, began + turn / rate - time.monotonic()))
                await self._heartbeat(client, hosts[turn % len(hosts)], took)
                if step is not None:
                    step.advance()

        shares = (range(number, len(hosts), len(self._clients)) for number in count())
        await asyncio.gather(*map(go_on, self._clients, shares))

    async def _heartbeat(self, client: Client, host: str, took: list[float]) -> None:
        image = {"generation": self._generations[host], "sent": 1 << 30, "hits": 9, "misses": 9}
        body = {"images": {"bench": image}, "received_rate": 1 << 20, "sent_rate": 1 << 20}
        began = time.monotonic()
        news = await self._ask(client, "PUT", f"/v1/hosts/{host}/heartbeat", body)
        took.append(time.monotonic() - began)
        for placement in news["placements"]:
            self._generations[host] = placement["generation"]

    async def _timed_join(self, client: Client, host: str, took: list[float], step: Step) -> None:
        began = time.monotonic()
        await self._join(client, host)
        took.append(time.monotonic() - began)
        step.advance()

    async def _join(self, client: Client, host: str) -> None:
        iqn = f"iqn.2026-11.org.virtman:{host}"
        portal = {"ip": "192.0.2.1", "port": 3260, "iqn": iqn, "lun": 0}
        placement = await self._ask(client, "PUT", f"{IMAGE}/hosts/{host}", {"portal": portal})
        self._generations[host] = placement["generation"]

    async def _together(
        self, hosts: Iterable[str], act: Callable[[Client, str], Awaitable[None]]
    ) -> None:
        """Act for all hosts, with a request in flight on each connection."""
        waiting = iter(hosts)

        async def go_on(client: Client) -> None:
            for host in waiting:
                await act(client, host)

        await asyncio.gather(*map(go_on, self._clients))

    async def _ask(self, client: Client, method: str, path: str, body: object = None) -> Any:
        answer: Answer = await client.ask(method, path, body)
        if answer.status >= 300:
            raise Refused(f"{method} {path}: {answer}")
        return answer.json()


def _sqlite(stack: ExitStack) -> str:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    return f"sqlite:///{folder}/volt.sqlite"


def _p99(took: list[float]) -> float:
    return sorted(took)[math.ceil(0.99 * len(took)) - 1]
