"""Clients that come and go at random, and repeat what Volt did not live to answer.

Each client speaks for hosts of its own, one request after the other, so that it knows what
is true of them in the end, however often Volt died.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from lab.client import Answer, Client, ConnectionLost

HEARTBEAT = 4  # seconds
PATIENCE = 60  # seconds in which Volt must be back
PAUSE = 0.05


@dataclass
class Member:
    """A host: its placements' generations and the portals it gave, by image."""

    name: str
    generations: dict[str, int] = field(default_factory=dict)
    portals: dict[str, dict[str, object]] = field(default_factory=dict)
    draining: bool = False
    seen: float = 0.0

    def heartbeat(self):
        images = {name: {"generation": number} for name, number in self.generations.items()}
        return {"images": images}


class Crowd:
    """All clients; ``complaints`` is what no client may ever see, ``done`` counts requests."""

    def __init__(
        self, clients: Sequence[Client], images: Sequence[str], hosts_each: int, seed: int
    ):
        self.images = images
        self.complaints: list[str] = []
        self.done: Counter[str] = Counter()
        self.lost = 0
        self._dice = random.Random(seed)
        self._clients = list(clients)
        self._members = [
            [Member(f"h{client}-{number}") for number in range(hosts_each)]
            for client in range(len(clients))
        ]

    @property
    def members(self) -> list[Member]:
        return [member for members in self._members for member in members]

    async def live(self, seconds: float) -> None:
        """Let all clients act at random for so long."""
        end = time.monotonic() + seconds
        await asyncio.gather(
            *(
                self._act(client, members, end)
                for client, members in zip(self._clients, self._members, strict=True)
            )
        )

    async def _act(self, client: Client, members: list[Member], end: float) -> None:
        verbs = [self._join, self._join, self._confirm, self._leave, self._remove, self._drain]
        while time.monotonic() < end:
            for member in members:
                if member.seen + HEARTBEAT < time.monotonic():
                    await self._beat(client, member)
            verb = self._dice.choice(verbs)
            await verb(client, self._dice.choice(members), self._dice.choice(self.images))

    async def _beat(self, client: Client, member: Member) -> None:
        answer = await self._ask(
            client, "PUT", f"/v1/hosts/{member.name}/heartbeat", member.heartbeat(), 200
        )
        member.seen = time.monotonic()
        if answer.status == 200:
            news = answer.json()
            if news["unknown"]:
                self.complaints.append(f"{member.name} lost its place in {news['unknown']}")
            for placement in news["placements"]:
                member.generations[placement["image"]] = placement["generation"]

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
        member.generations.pop(image, None)
        member.portals.pop(image, None)

    async def _drain(self, client: Client, member: Member, image: str) -> None:
        """Drain a host now and then; most are taken back soon."""
        draining = not member.draining and self._dice.random() < 0.3
        if member.seen and draining != member.draining:
            body = {"draining": draining}
            await self._ask(client, "PATCH", f"/v1/hosts/{member.name}", body, 200)
            member.draining = draining

    async def _ask(
        self, client: Client, method: str, path: str, body: object, *expected: int
    ) -> Answer:
        """Ask until Volt answers; complain about any other status than those expected."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                answer = await client.ask(method, path, body)
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


def _place(image: str, member: Member) -> str:
    return f"/v1/images/{image}/hosts/{member.name}"
