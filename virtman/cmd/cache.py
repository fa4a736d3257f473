"""The noun ``cache``: block devices of others that this node's cache group speeds up."""

from __future__ import annotations

import json

import click

from virtman.api.answers import VolumeAnswer
from virtman.api.client import Client
from virtman.cmd import complete, table
from virtman.cmd.options import as_json


@click.group()
def cache() -> None:
    """Cinder volumes and other devices behind this node's cache."""


@cache.command()
@click.argument("device")
@click.option(
    "--mode",
    type=click.Choice(["writethrough", "writeback"]),
    default="writethrough",
    show_default=True,
    help="With writeback, a cache device that fails loses writes that are not on DEVICE yet.",
)
@as_json
@click.pass_obj
def attach(client: Client, device: str, mode: str, as_json: bool) -> None:
    """Put the cache in front of DEVICE. Print the path to use."""
    made = client.attach(device, mode)
    click.echo(json.dumps(made) if as_json else made["device"])


@cache.command()
@click.argument("device", shell_complete=complete.volumes)
@click.pass_obj
def detach(client: Client, device: str) -> None:
    """Write back what only the cache holds, then release DEVICE."""

    def show(volume: VolumeAnswer) -> None:
        click.echo(f"{volume['dirty']} bytes to go", err=True)

    client.detach(device, show)


@cache.command("list")
@as_json
@click.pass_obj
def list_cached(client: Client, as_json: bool) -> None:
    """List these devices, with dirty bytes, hits and misses."""
    found = client.cached()
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [
        (one["volume"], one["mode"], one["state"], table.size(one["dirty"]),
         str(one["cache"]["hits"]), str(one["cache"]["misses"]), one["device"])
        for one in found
    ]  # fmt: skip
    table.table(("VOLUME", "MODE", "STATE", "DIRTY", "HITS", "MISSES", "DEVICE"), rows)
