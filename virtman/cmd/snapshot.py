"""The noun ``snapshot``: VMs' data as of a moment."""

from __future__ import annotations

import json

import click

from virtman.api.client import Client
from virtman.cmd import complete, table
from virtman.cmd.options import as_json


@click.group()
def snapshot() -> None:
    """Snapshots: the data of VMs as of a moment."""


@snapshot.command("create")
@click.argument("vm", shell_complete=complete.vms)
@click.argument("name", metavar="SNAPSHOT")
@as_json
@click.pass_obj
def create_snapshot(client: Client, vm: str, name: str, as_json: bool) -> None:
    """Take a snapshot of VM while it runs."""
    made = client.snapshot(vm, name)
    if as_json:
        click.echo(json.dumps(made))


@snapshot.command("list")
@click.argument("vm", default="", shell_complete=complete.vms)
@as_json
@click.pass_obj
def list_snapshots(client: Client, vm: str, as_json: bool) -> None:
    """List all snapshots, or those of VM, oldest first."""
    found = client.snapshots(vm)
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [(one["snapshot"], one["vm"], one["image"], one["created_at"]) for one in found]
    table.table(("SNAPSHOT", "VM", "IMAGE", "CREATED"), rows)


@snapshot.command("show")
@click.argument("name", metavar="SNAPSHOT", shell_complete=complete.snapshots)
@as_json
@click.pass_obj
def show_snapshot(client: Client, name: str, as_json: bool) -> None:
    """Show one snapshot and its exception stores."""
    found = client.show_snapshot(name)
    if as_json:
        click.echo(json.dumps(found))
        return
    table.fields(found, ("snapshot", "vm", "image", "size", "created_at"))
    table.stores(found)


@snapshot.command()
@click.argument("vm", shell_complete=complete.vms)
@click.argument("name", metavar="SNAPSHOT", shell_complete=complete.snapshots_of_vm)
@click.pass_obj
def rollback(client: Client, vm: str, name: str) -> None:
    """Return VM to SNAPSHOT; what it wrote since is lost. Refused while its device is open."""
    client.rollback(vm, name)


@snapshot.command("delete")
@click.argument(
    "names", metavar="SNAPSHOT...", nargs=-1, required=True, shell_complete=complete.snapshots
)
@click.pass_obj
def delete_snapshots(client: Client, names: tuple[str, ...]) -> None:
    """Delete snapshots.

    Data that no VM and no other snapshot needs is freed.
    """
    for name in names:
        client.delete_snapshot(name)
