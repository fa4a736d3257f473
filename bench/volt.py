"""How fast Volt places hosts, what their heartbeats cost, and how soon the dead are out.

One Volt on a database of its own, on this machine; the load comes from this process, over
REST as from hosts.
"""

import asyncio
import math
import os
import socket
import tempfile
import time
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, TypeVar

from bench.report import Progress, Step
from bench.rows import RowCounter
from bench.usage import Cores, peak_memory
from lab import invariants
from lab.client import Answer, Client
from lab.databases import Mariadb, Postgresql, Server
from lab.volt import Volt, source

WORKERS = {"postgresql": 4, "mariadb": 4, "sqlite": 1}
YARDSTICK = 5  # seconds of pgbench, twice
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
ROWS_OF = "bench0"  # the image whose joins' rows are counted


Each = TypeVar("Each")


class Refused(Exception):
    """Volt answered with an error."""


@dataclass(frozen=True)
class Load:
    """What hosts do.

    :ivar images: how many there are
    :ivar places: how many of them a host joins
    :ivar racks: how many there are, over which hosts are spread; 0 if nobody tells racks
    """

    hosts: int
    images: int = 1
    places: int = 1
    racks: int = 0

    def joins(self) -> Sequence[tuple[str, str]]:
        """Return who joins what: hosts in order, images dealt to them in turn."""
        return [
            (f"h{host:05}", f"bench{(host + place) % self.images}")
            for host in range(self.hosts)
            for place in range(self.places)
        ]

    def rack(self, host: str) -> str | None:
        """Return the rack of a host, if it tells one."""
        return f"r{zlib.crc32(host.encode()) % self.racks:03}" if self.racks else None


def measure(database: str, load: Load, workers: int | None, progress: Progress) -> dict[str, Any]:
    """Return one entry of ``runs``.

    :param workers: of Volt; None for as many as suit the database
    """
    with ExitStack() as stack:
        server = stack.enter_context(SERVERS[database]()) if database in SERVERS else None
        yardstick = _yardstick(server, progress)
        url = server.create("volt") if server else _sqlite(stack)
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        run = _Run(database, load, server, progress)
        count = workers or WORKERS[database]
        figures = {"database": database, "workers": count, **asdict(load), **yardstick}

        def served(expiry: int) -> Volt:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            options = {"heartbeat": {"interval": INTERVAL, "expiry": expiry}}
            return stack.enter_context(Volt(folder, url, count, options))

        # Rows are counted with pauses in which hosts that say nothing would be expired.
        volt = served(NEVER)
        figures |= asyncio.run(run.joins(volt, listener.getsockname()[1]))
        volt.kill()
        return figures | asyncio.run(run.life(served(EXPIRY)))


class _Run:
    def __init__(
        self, database: str, load: Load, server: Server | None, progress: Progress
    ) -> None:
        self._database, self._load, self._progress = database, load, progress
        self._server = server
        self._generations: dict[str, dict[str, int]] = defaultdict(dict)  # by host and image

    async def joins(self, volt: Volt, source_port: int) -> dict[str, Any]:
        """Let all hosts join, and report once."""
        await self._open(volt, IN_FLIGHT)
        for image in self._images():
            await self._create_image(image, source_port)
        before = self._size()
        figures = await self._joins()
        await self._open(volt, REPORTING)
        hosts = list(self._generations)
        await self._beat(hosts, INTERVAL, [], self._progress.step("first heartbeats", len(hosts)))
        grown = None if before is None else (self._size() - before) / len(hosts)
        memory = max(map(peak_memory, volt.workers()))
        return figures | {"rss_bytes_per_worker": memory, "database_bytes_per_host": grown}

    async def life(self, volt: Volt) -> dict[str, Any]:
        """Let all hosts report for a while, then some fall silent."""
        await self._open(volt, REPORTING)
        beats = await self._heartbeats()
        silent, expired, faults = await self._expiry()
        return {**beats, "silent": silent, "expire_1000_s": expired, "faults": faults}

    def _size(self) -> Any:
        """Return the bytes of the database; None if it does not say."""
        if not isinstance(self._server, Postgresql):
            return None
        return self._server.query("SELECT pg_database_size('volt')")[0][0]

    async def _open(self, volt: Volt, connections: int) -> None:
        """Connect one after the other, as agents do; all at once, one worker may get most."""
        self._volt = volt
        self._clients = [volt.client() for _ in range(connections)]
        for client in self._clients:
            await self._ask(client, "GET", "/healthz")

    async def _create_image(self, image: str, port: int) -> None:
        body = {"name": image, "size": 1 << 30, "source": source(port)}
        await self._ask(self._clients[0], "POST", "/v1/images", body)

    async def _joins(self) -> dict[str, Any]:
        """Let all hosts join; of a single image, with pauses to count the rows of a join."""
        joins = self._load.joins()
        step = self._progress.step("joins", len(joins))
        took: list[float] = []
        spent, rows, begun = 0.0, dict.fromkeys(map(str, PROBED_AT)), 0
        probed = PROBED_AT if self._server is not None and self._load.images == 1 else ()
        shares = [0.0, 0.0, 0.0]
        for stop in sorted({*(n for n in probed if n < len(joins)), len(joins)}):
            part = joins[begun:stop]
            begun = stop
            busy = self._volt_cores(), self._database_cores(), Cores(lambda: [os.getpid()])
            began = time.monotonic()
            async with asyncio.timeout(LONGEST):
                await self._together(part, lambda c, pair: self._timed_join(c, pair, took, step))
            lasted = time.monotonic() - began
            spent += lasted
            shares = [share + one.used() * lasted for share, one in zip(shares, busy, strict=True)]
            if stop in probed and self._server is not None:
                rows[str(stop)] = await self._probe(self._server, stop)
        names = ("join_cores_volt", "join_cores_database", "join_cores_bench")
        return {
            "joins_per_s": len(joins) / spent,
            "join_p99_ms": _p99(took) * 1000,
            **{name: share / spent for name, share in zip(names, shares, strict=True)},
            "rows_touched": rows,
        }

    async def _probe(self, server: Server, present: int) -> float:
        """Return the rows that one join touches; the hosts are gone afterwards."""
        step = self._progress.step(f"rows at {present:,}", PROBES)
        counter = RowCounter(server, "volt")
        await counter.begin()
        names = [f"probe{number}" for number in range(PROBES)]
        for name in names:
            await self._join(self._clients[0], name, ROWS_OF)
            step.advance()
        touched = await counter.end()
        for name in names:
            await self._ask(self._clients[0], "DELETE", f"/v1/images/{ROWS_OF}/hosts/{name}")
            del self._generations[name]
        return touched / PROBES

    def _volt_cores(self) -> Cores:
        return Cores(self._volt.processes)

    def _database_cores(self) -> Cores:
        return Cores(self._server.processes if self._server else tuple)

    async def _heartbeats(self) -> dict[str, Any]:
        hosts = list(self._generations)
        step = self._progress.step("heartbeats", int((HELD / INTERVAL + 1) * len(hosts)))
        await self._beat(hosts, INTERVAL, [], step)  # not measured: Volt has just started
        volt, database = self._volt_cores(), self._database_cores()
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
        expired = await self._wait_for_expiry(living, due, step)
        trees = {
            image: await self._ask(self._volt.client(), "GET", f"/v1/images/{image}/trees")
            for image in self._images()
        }
        if beating.done():
            beating.result()  # raises what ended it: the living fell silent too
        beating.cancel()
        faults = chain.from_iterable(
            invariants.faults(trees[image], [one for one in living if image in self._joined(one)])
            for image in trees
        )
        return len(silent), expired, list(islice(faults, SHOWN))

    async def _wait_for_expiry(self, living: Sequence[str], due: float, step: Step) -> float | None:
        client, present = self._volt.client(), self._load.hosts * self._load.places
        while time.monotonic() < due + PATIENCE:
            shown = [await self._ask(client, "GET", f"/v1/images/{one}") for one in self._images()]
            places = sum(image["hosts"] for image in shown)
            step.advance((present - places) // self._load.places)
            present = places
            if places <= len(living) * self._load.places:
                return max(0.0, time.monotonic() - due)
            await asyncio.sleep(0.1)
        return None

    def _images(self) -> Sequence[str]:
        return [f"bench{number}" for number in range(self._load.images)]

    def _joined(self, host: str) -> Collection[str]:
        return self._generations[host].keys()

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

        clients = self._clients[: len(hosts)]  # who has no host would go on for ever
        shares = (range(number, len(hosts), len(clients)) for number in count())
        await asyncio.gather(*map(go_on, clients, shares))

    async def _heartbeat(self, client: Client, host: str, took: list[float]) -> None:
        images = {
            image: {"generation": generation, "sent": 1 << 30, "hits": 9, "misses": 9}
            for image, generation in self._generations[host].items()
        }
        body = {"images": images, "received_rate": 1 << 20, "sent_rate": 1 << 20}
        began = time.monotonic()
        news = await self._ask(client, "PUT", f"/v1/hosts/{host}/heartbeat", body)
        took.append(time.monotonic() - began)
        for placement in news["placements"]:
            self._generations[host][placement["image"]] = placement["generation"]

    async def _timed_join(
        self, client: Client, pair: tuple[str, str], took: list[float], step: Step
    ) -> None:
        began = time.monotonic()
        await self._join(client, *pair)
        took.append(time.monotonic() - began)
        step.advance()

    async def _join(self, client: Client, host: str, image: str) -> None:
        iqn = f"iqn.2026-11.org.virtman:{host}"
        body: dict[str, Any] = {"portal": {"ip": "192.0.2.1", "port": 3260, "iqn": iqn, "lun": 0}}
        rack = self._load.rack(host)
        if rack is not None:
            body["rack"] = rack
        path = f"/v1/images/{image}/hosts/{host}"
        placement = await self._ask(client, "PUT", path, body)
        self._generations[host][image] = placement["generation"]

    async def _together(
        self, hosts: Iterable[Each], act: Callable[[Client, Each], Awaitable[None]]
    ) -> None:
        """Act for all, with a request in flight on each connection."""
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


def _yardstick(server: Server | None, progress: Progress) -> dict[str, float | None]:
    """Return what this database does by itself on this machine, so that machines compare."""
    step = progress.step("pgbench", 1)
    alone = together = None
    if isinstance(server, Postgresql):
        alone, together = server.transactions_per_s((1, IN_FLIGHT), YARDSTICK)
    step.advance()
    return {"pgbench_alone_per_s": alone, "pgbench_per_s": together}


def _p99(took: list[float]) -> float:
    return sorted(took)[math.ceil(0.99 * len(took)) - 1]
