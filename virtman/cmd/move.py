"""The noun ``move``: VMs, or copies of them, on their way to other hosts."""

from __future__ import annotations

import json

import click

from virtman.api.answers import MoveAnswer
from virtman.api.client import Client
from virtman.cmd import complete, table
from virtman.cmd.options import as_json


@click.group()
def move() -> None:
    """Moves: VMs, or copies of VMs, on their way to other hosts."""


@move.command("list")
@as_json
@click.pass_obj
def list_moves(client: Client, as_json: bool) -> None:
    """List the moves from this host.

    Those that ended since its agent started are included.
    """
    found = client.moves()
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [
        (one["vm"], one["kind"], one["host"], one["as"], one["state"], table.size(one["sent"]),
         table.size(one["left"]), one["note"])
        for one in found
    ]  # fmt: skip
    table.table(("VM", "KIND", "TO", "AS", "STATE", "SENT", "LEFT", "NOTE"), rows)


@move.command("watch")
@click.argument("vm", shell_complete=complete.moves)
@as_json
@click.pass_obj
def watch_move(client: Client, vm: str, as_json: bool) -> None:
    """Wait until the other host owns VM, or the move has failed."""
    follow(client, vm, as_json=as_json)


@move.command("finish")
@click.argument("vm", shell_complete=complete.moves)
@as_json
@click.pass_obj
def finish_move(client: Client, vm: str, as_json: bool) -> None:
    """Hand over VM, which moves live.

    Call this once its hypervisor here has closed the device.
    """
    client.finish_move(vm)
    follow(client, vm, as_json=as_json)


@move.command("cancel")
@click.argument("vm", shell_complete=complete.moves)
@click.pass_obj
def cancel_move(client: Client, vm: str) -> None:
    """Keep VM on its host. On the destination: refuse it."""
    client.cancel_move(vm)


def follow(client: Client, vm: str, *, ready: bool = False, as_json: bool) -> None:
    """Show how a move goes on, and how it ends."""
    with table.status_line(as_json=as_json) as show:
        ended = client.await_move(vm, lambda now: show(_progress(now)), ready=ready)
    if as_json:
        click.echo(json.dumps(ended))
        return
    if ended["state"] == "ready":
        click.echo(f"{vm} can go to {ended['host']}: end that with 'virtman move finish {vm}'")
        return
    held = "" if ended["pause"] is None else f"; it was held for {ended['pause']:.3f} s"
    rest = f"; {ended['note']}" if ended["note"] else ""
    click.echo(
        f"{ended['as']} is on {ended['host']}: {ended['sent']} bytes, {ended['wire']} on the "
        f"way{held}{rest}"
    )


def _progress(now: MoveAnswer) -> str:
    state = now["note"] or f"{now['sent']} bytes sent, {now['left']} left"
    return f"{now['state']}, round {now['round']}: {state}"
