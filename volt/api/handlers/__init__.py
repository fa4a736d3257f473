"""How each noun of the REST API answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from volt.api.parsing import Page
from volt.background.waiters import Watch
from volt.registry.caps import Caps
from volt.registry.copies import Copies
from volt.registry.holds import Holds
from volt.registry.hosts import Hosts
from volt.registry.images import Images
from volt.registry.imports import Imports
from volt.registry.peers import Peers
from volt.registry.placements import Placements
from volt.registry.profiles import Profiles
from volt.registry.reports import Reports
from volt.registry.warmups import Warmups


@dataclass(frozen=True)
class Service:
    """What handlers work with; ``heartbeat_interval`` in seconds."""

    images: Images
    placements: Placements
    hosts: Hosts
    heartbeat_interval: float
    watch: Watch
    reports: Reports
    peers: Peers
    profiles: Profiles
    warmups: Warmups
    caps: Caps
    holds: Holds
    imports: Imports
    copies: Copies


def page_of(noun: str, found: Sequence[Any], page: Page, key: str) -> dict[str, Any]:
    """Answer with a page of a list, of which one thing more than fits was looked for."""
    things = found[: page.limit]
    return {noun: things, "next": getattr(things[-1], key) if len(found) > page.limit else None}
