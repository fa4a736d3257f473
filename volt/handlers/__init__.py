"""How each noun of the REST API answers."""

from dataclasses import dataclass

from flask.typing import ResponseReturnValue

from volt.reports import Reports
from volt.roster import Roster
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
