"""How each noun of the REST API answers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flask.typing import ResponseReturnValue

from volt.peers import Peers
from volt.reports import Reports
from volt.roster import Roster
from volt.schemas import Page
from volt.trees import Coordinator
from volt.watch import Watch

Answer = ResponseReturnValue


@dataclass(frozen=True)
class Service:
    """What handlers work with; ``heartbeat_interval`` in seconds."""

    coordinator: Coordinator
    roster: Roster
    heartbeat_interval: float
    watch: Watch
    reports: Reports
    peers: Peers


def page_of(noun: str, found: Sequence[Any], page: Page, key: str) -> dict[str, Any]:
    """Answer with a page of a list, of which one thing more than fits was looked for."""
    things = [asdict(each) for each in found[: page.limit]]
    return {noun: things, "next": things[-1][key] if len(found) > page.limit else None}
