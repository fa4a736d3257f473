"""Clients that come and go at random, and repeat what Volt did not live to answer.

Each client speaks for hosts of its own, one request after the other, so that it knows what
is true of them in the end, however often Volt died.
"""

import asyncio
import base64
import hashlib
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab import invariants
from lab.client import Answer, Client, ConnectionLost
from volt.model.profiles import MAGIC, VERSION

HEARTBEAT = 4.0  # seconds
PATIENCE = 60.0  # seconds in which Volt must be back
PAUSE = 0.05
WAIT = 20  # seconds for which Volt holds a question back that has no news
UNAVAILABLE = 503
SIZE = 1 << 20  # bytes of an image that has a hash tree
ROOT_HASH = "0123456789abcdef" * 4

Verb = Callable[[Client, "Member", str], Awaitable[None]]


@dataclass
class Member:
    """A host: its placements' generations and the portals it gave, by image.

    :ivar silent_until: when it reports again; until then it is as good as dead
    :ivar may_be_lost: whether Volt may have forgotten its places since its last heartbeat
    """

    name: str
    generations: dict[str, int] = field(default_factory=dict)
    portals: dict[str, dict[str, object]] = field(default_factory=dict)
    draining: bool = False
    seen: float = 0.0
    silent_until: float = 0.0
    may_be_lost: bool = False

    def heartbeat(self) -> dict[str, object]:
        """Return what it reports."""
        images = {name: {"generation": number} for name, number in self.generations.items()}
        return {"images": images}

    def lose(self, image: str) -> None:
        """Have no place in an image any more."""
        self.generations.pop(image, None)
        self.portals.pop(image, None)


class Crowd:
    """All clients.

    :ivar complaints: what no client may ever see, in words
    :ivar done: requests that were answered, by method and status
    :ivar lost: requests that Volt did not live to answer
    :ivar deaths: hosts that fell silent for longer than Volt waits for them
    """

    def __init__(
        self, clients: Sequence[Client], images: Sequence[str], hosts_each: int, seed: int
    ) -> None:
        self.images = images
        self.complaints: list[str] = []
        self.done: Counter[str] = Counter()
        self.lost = 0
        self.deaths = 0
        self._silence = 0.0
        self._outages: tuple[int, ...] = ()
        self._dice = random.Random(seed)  # noqa: S311 - no secret
        self._clients = list(clients)
        self._members = [
            [Member(f"h{client}-{number}") for number in range(hosts_each)]
            for client in range(len(clients))
        ]
        self._verbs: list[Verb] = [
            *(self._join, self._join, self._confirm, self._leave, self._remove, self._drain)
        ]

    @property
    def members(self) -> list[Member]:
        """All hosts."""
        return [member for members in self._members for member in members]

    def have_deaths(self, silence: float) -> None:
        """Have hosts fall silent too, for so many seconds: Volt takes them for dead meanwhile."""
        self._silence = silence
        self._verbs.append(self._die)

    def have_profiles(self) -> None:
        """Have hosts store boot profiles too; images need ``hashes``."""
        self._verbs.append(self._store_profile)

    def have_outages(self) -> None:
        """Ask again where Volt says that it is unavailable: its database is away at times."""
        self._outages = (UNAVAILABLE,)

    async def live(self, seconds: float, idle: float = 0.0) -> None:
        """Let all clients act at random for so long.

        :param idle: seconds between two acts of a client, on average; none: it acts all the time
        """
        end = time.monotonic() + seconds
        pairs = zip(self._clients, self._members, strict=True)
        await asyncio.gather(*(self._act(*pair, end, idle) for pair in pairs))

    async def listen(self, clients: Sequence[Client], seconds: float) -> None:
        """Let all hosts wait for news for so long, each by a client of its own, as agents do."""
        end = time.monotonic() + seconds
        pairs = zip(clients, self.members, strict=True)
        await asyncio.gather(*(self._listen(*pair, end) for pair in pairs))

    async def faults(self, client: Client) -> list[str]:
        """Compare what Volt shows of the trees with what the clients know; in words."""
        found: list[str] = []
        closed = {member.name for member in self.members if member.draining}
        for image in self.images:
            portals = {
                member.name: member.portals[image]
                for member in self.members
                if image in member.generations
            }
            trees = await _shown(client, f"/v1/images/{image}/trees")
            places = [await _shown(client, f"/v1/images/{image}/hosts/{host}") for host in portals]
            found += invariants.faults(trees, portals, closed)
            found += invariants.placement_faults(trees, places, portals)
            shown = await _shown(client, f"/v1/images/{image}")
            if shown["hosts"] != len(portals):
                found.append(f"{image} counts {shown['hosts']} hosts, not {len(portals)}")
        return found

    async def settle(self) -> None:
        """Have hosts report that are silent, so that both sides know who has which place."""

        async def report(client: Client, members: Sequence[Member]) -> None:
            for member in members:
                await self._beat(client, member)

        await asyncio.gather(*map(report, self._clients, self._members))

    async def _act(
        self, client: Client, members: Sequence[Member], end: float, idle: float
    ) -> None:
        await asyncio.sleep(self._dice.uniform(0, min(idle, HEARTBEAT)))  # not all at once
        due = self._next_act(idle)
        while time.monotonic() < end:
            living = [one for one in members if one.silent_until < time.monotonic()]
            for member in living:
                if member.seen + HEARTBEAT < time.monotonic():
                    await self._beat(client, member)
            if living and due <= time.monotonic():
                verb = self._dice.choice(self._verbs)
                await verb(client, self._dice.choice(living), self._dice.choice(self.images))
                due = self._next_act(idle)
            if idle or not living:
                beats = min((one.seen + HEARTBEAT for one in living), default=due)
                await asyncio.sleep(max(PAUSE, min(beats, due, end) - time.monotonic()))

    def _next_act(self, idle: float) -> float:
        return time.monotonic() + self._dice.uniform(0, 2 * idle)

    async def _listen(self, client: Client, member: Member, end: float) -> None:
        tag = ""
        while time.monotonic() < end:
            path = f"/v1/hosts/{member.name}/placements?wait={WAIT}"
            try:
                answer = await self._ask(
                    client, "GET", path, None, 200, 304, headers={"If-None-Match": tag}
                )
            except ConnectionLost:  # it waits for so long that each try may see Volt die
                continue
            if answer.status == 200:
                tag = answer.headers["etag"]
        client.close()

    async def _beat(self, client: Client, member: Member) -> None:
        path = f"/v1/hosts/{member.name}/heartbeat"
        answer = await self._ask(client, "PUT", path, member.heartbeat(), 200)
        member.seen = time.monotonic()
        if answer.status == 200:
            news = answer.json()
            if news["unknown"] and not member.may_be_lost:
                self.complaints.append(f"{member.name} lost its place in {news['unknown']}")
            for image in news["unknown"]:
                member.lose(image)
            for placement in news["placements"]:
                member.generations[placement["image"]] = placement["generation"]
            member.may_be_lost = False

    async def _join(self, client: Client, member: Member, image: str) -> None:
        address = ".".join(str(self._dice.randrange(1, 250)) for _ in range(4))
        iqn = f"iqn.2026-11.org.virtman:{member.name}:{image}"
        portal = {"ip": address, "port": 3260, "iqn": iqn, "lun": 0, "offset": 0}
        body = {"portal": portal, "rack": f"r{self._dice.randrange(4)}"}
        answer = await self._ask(client, "PUT", _place(image, member), body, 200, 201)
        if answer.status < 300:
            member.generations[image] = answer.json()["generation"]
            member.portals[image] = portal

    async def _confirm(self, client: Client, member: Member, image: str) -> None:
        if image in member.generations:
            body = {"state": "ready", "generation": member.generations[image]}
            answer = await self._ask(client, "PATCH", _place(image, member), body, 200, 409)
            if answer.status == 409:
                await self._beat(client, member)

    async def _leave(self, client: Client, member: Member, image: str) -> None:
        """Leave as a host does that lets its children move first."""
        if image in member.generations:
            leaving = {"state": "leaving"}
            await self._ask(client, "PATCH", _place(image, member), leaving, 200)
            await self._remove(client, member, image)

    async def _remove(self, client: Client, member: Member, image: str) -> None:
        await self._ask(client, "DELETE", _place(image, member), None, 204)
        member.lose(image)

    async def _drain(self, client: Client, member: Member, image: str) -> None:
        """Drain a host now and then; most are taken back soon."""
        draining = not member.draining and self._dice.random() < 0.3
        if member.seen and draining != member.draining:
            body = {"draining": draining}
            await self._ask(client, "PATCH", f"/v1/hosts/{member.name}", body, 200)
            member.draining = draining

    async def _die(self, client: Client, member: Member, image: str) -> None:
        """Fall silent now and then, for longer than Volt waits."""
        if member.seen and self._dice.random() < 0.05:
            member.silent_until = time.monotonic() + self._silence
            member.may_be_lost = True
            self.deaths += 1

    async def _store_profile(self, client: Client, member: Member, image: str) -> None:
        path = f"/v1/images/{image}/profiles/boot"
        content = self._dice.randbytes(4096)
        await self._ask(client, "PUT", path, _profile(content), 200, 201)

    async def _ask(
        self,
        client: Client,
        method: str,
        path: str,
        body: object,
        *expected: int,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask until Volt answers; complain about any other status than those expected."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                answer = await client.ask(method, path, body, headers)
                if answer.status not in self._outages or time.monotonic() > deadline:
                    break
            except ConnectionLost:
                self.lost += 1
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(PAUSE)
        self.done[f"{method} {answer.status}"] += 1
        if answer.status not in expected:
            self.complaints.append(f"{method} {path}: {answer}")
        return answer


def hashes() -> dict[str, str]:
    """Return the hash tree of an image of ``SIZE`` bytes, as it is registered with one."""
    upper = base64.b64encode(bytes(4096)).decode()
    return {"root_hash": ROOT_HASH, "salt": ROOT_HASH, "upper_hashes": upper}


def _profile(content: bytes) -> bytes:
    """Return a boot profile as Volt sees it: a head, and what agents alone can read."""
    head = MAGIC + bytes([VERSION]) + bytes.fromhex(ROOT_HASH) + hashlib.sha256(content).digest()
    return head + content


def _place(image: str, member: Member) -> str:
    return f"/v1/images/{image}/hosts/{member.name}"


async def _shown(client: Client, path: str) -> Any:
    answer = await client.ask("GET", path)
    assert answer.status == 200, f"{path}: {answer}"
    return answer.json()
