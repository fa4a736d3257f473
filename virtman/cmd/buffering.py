"""Waits until a VM that goes on will not have to wait for what it reads (vTube, 4.2.3)."""

from __future__ import annotations

import click

from virtman.api.answers import AheadAnswer
from virtman.api.client import Client
from virtman.cmd import table


def wait(client: Client, image: str, workload: str, vm: str, *, as_json: bool) -> None:
    """Have fetched what VMs read of an image; return once a VM may go on.

    That is also if no more is fetched. How long it takes is said before, and as it goes on.

    :raises ProfileUnknown: if nobody knows what VMs read
    """
    with table.status_line(as_json=as_json) as show:
        ended = client.warm(
            image, lambda now: show(notice(vm, now)), workload=workload, until=is_enough
        )
    if not is_enough(ended):
        click.echo(f"{vm}: goes on with less than it needs: {ended['verdict']}", err=True)


def is_enough(ahead: AheadAnswer) -> bool:
    """Tell whether a VM may go on."""
    return ahead["there"] >= ahead["head"]


def notice(vm: str, ahead: AheadAnswer) -> str:
    """Return what a person is told who waits for a VM."""
    lacking = ahead["head"] - ahead["there"]
    amounts = f"{table.rounded(ahead['there'])} of {table.rounded(ahead['head'])} are here"
    if not ahead["fetched"]:
        return f"{vm} stands still: {amounts}"
    seconds = lacking * ahead["seconds"] / ahead["fetched"]
    return f"{vm} stands still for about {seconds:.0f} s more: {amounts}"
