"""The noun ``layer``: what VMs wrote, made images that lie on others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import BinaryIO

import click

from virtman import atomic_file
from virtman.api.answers import LayerAnswer
from virtman.api.client import Client
from virtman.cmd import complete, table
from virtman.cmd.options import as_json


@click.group()
def layer() -> None:
    """Layers: images of what VMs wrote, which lie on the images that the VMs began with."""


@layer.command("create")
@click.argument("vm", shell_complete=complete.vms)
@click.argument("name", metavar="LAYER")
@click.option("--final", is_flag=True, help="Also destroy VM once the layer is kept.")
@as_json
@click.pass_obj
def create_layer(client: Client, vm: str, name: str, final: bool, as_json: bool) -> None:
    """Make what VM has written up to now the image LAYER. VM keeps running."""
    client.commit(vm, name, final=final)
    follow(client, name, as_json=as_json)


@layer.command("list")
@as_json
@click.pass_obj
def list_layers(client: Client, as_json: bool) -> None:
    """List the layers that this node has made, and serves."""
    found = client.layers()
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [
        (one["layer"], one["image"], one["vm"], one["state"], table.size(one["length"]),
         one["created_at"], one["note"])
        for one in found
    ]  # fmt: skip
    table.table(("LAYER", "PARENT", "VM", "STATE", "SIZE", "CREATED", "NOTE"), rows)


@layer.command("watch")
@click.argument("name", metavar="LAYER", shell_complete=complete.layers)
@as_json
@click.pass_obj
def watch_layer(client: Client, name: str, as_json: bool) -> None:
    """Wait until LAYER is kept, or its commit has failed."""
    follow(client, name, as_json=as_json)


@layer.command("export")
@click.argument("name", metavar="LAYER", shell_complete=complete.layers)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.pass_obj
def export_layer(client: Client, name: str, file: Path) -> None:
    """Write LAYER to FILE, to take it elsewhere.

    The file is compressed, and has nothing of the parent.
    """
    pieces = client.export_layer(name)
    try:
        with atomic_file.replacing(file) as into:
            for piece in pieces:
                into.write(piece)
    except OSError as err:
        raise click.FileError(str(file), str(err)) from err


@layer.command("import")
@click.argument("file", type=click.File("rb"))
@click.argument("name", metavar="[LAYER]", default="")
@as_json
@click.pass_obj
def import_layer(client: Client, file: BinaryIO, name: str, as_json: bool) -> None:
    """Have the layer in FILE on this node too, over the same parent.

    Without LAYER it has the name that it had when it was exported.
    """
    made = client.import_layer(file, name)
    follow(client, made["layer"], as_json=as_json)


@layer.command("remove")
@click.argument(
    "names", metavar="LAYER...", nargs=-1, required=True, shell_complete=complete.layers
)
@click.option(
    "--elsewhere",
    is_flag=True,
    help="Also if they are needed: a host that has all of LAYER stands for this one.",
)
@click.pass_obj
def remove_layers(client: Client, names: tuple[str, ...], elsewhere: bool) -> None:
    """Delete layers that this node has made, or give their commits up.

    Refused while VMs, hosts or other layers need them.
    """
    for name in names:
        client.remove_layer(name, elsewhere=elsewhere)


def follow(client: Client, name: str, *, as_json: bool) -> None:
    """Show how a commit goes on, and how it ends."""
    with table.status_line(as_json=as_json) as show:
        ended = client.await_layer(name, lambda now: show(_progress(now)))
    if as_json:
        click.echo(json.dumps(ended))
        return
    rest = f"; {ended['note']}" if ended["note"] else ""
    made = f"{ended['length']} bytes over {ended['image']}, as of {ended['created_at']}"
    click.echo(f"{name}: {made}{rest}")


def _progress(now: LayerAnswer) -> str:
    state = now["note"] or f"{now['done']} of {now['total']} bytes"
    return f"{now['state']}: {state}"
