"""How each noun of the REST API answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from typing import Any

from werkzeug import Response

from volt.api.schemas import Page
from volt.background.waiters import Watch
from volt.registry.hosts import Roster
from volt.registry.peers import Peers
from volt.registry.reports import Reports
from volt.registry.trees import Coordinator

Answer = (
    Response
    | dict[str, Any]
    | tuple[dict[str, Any] | None, int]
    | tuple[dict[str, Any] | None, int, Mapping[str, str]]
)
"""What becomes JSON (None: nothing), perhaps with a status other than 200, and headers."""


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
    things = found[: page.limit]
    return {noun: things, "next": getattr(things[-1], key) if len(found) > page.limit else None}


def json_response(
    content: dict[str, Any] | None, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with JSON, times in ISO 8601; with nothing at all for None."""
    text = "" if content is None else _ENCODER.encode(content)
    return Response(text, status, headers, content_type="application/json")


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return vars(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no form in JSON")


_ENCODER = json.JSONEncoder(default=_plain, separators=(",", ":"))
