"""What the shell offers when Tab is pressed for a name: what the agent has of that kind.

Nothing is offered, and nothing said, while the agent does not answer at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from virtman.api.client import Client
from virtman.errors import VirtmanError

_PATIENCE = 1.0  # seconds: somebody waits at a prompt

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _offer(names_of: Callable[[Client, click.Context], Iterable[str]]) -> Complete:
    """Return the completion by names that the agent has."""

    def complete(
        context: click.Context, parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        client = Client(context.find_root().params["socket"], _PATIENCE)
        try:
            names = sorted(set(names_of(client, context)))
        except VirtmanError:
            return []
        return [CompletionItem(name) for name in names if name.startswith(begun)]

    return complete


vms = _offer(lambda client, _: (one["vm"] for one in client.list()))
images = _offer(lambda client, _: (one["image"] for one in client.images()))
moves = _offer(lambda client, _: (one["vm"] for one in client.moves()))
checkpointed = _offer(lambda client, _: (one["vm"] for one in client.checkpoints()))
layers = _offer(lambda client, _: (one["layer"] for one in client.layers()))
volumes = _offer(lambda client, _: (one["volume"] for one in client.cached()))
snapshots = _offer(lambda client, _: (one["snapshot"] for one in client.snapshots()))
snapshots_of_vm = _offer(
    lambda client, context: (
        one["snapshot"] for one in client.snapshots(context.params.get("vm") or "")
    )
)


def new_vm(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offer images for the first of IMAGE and VM; a new VM's name nobody knows."""
    return [] if context.params.get("names") else images(context, parameter, begun)
