"""The ``virtman`` command: the agent's verbs, and images' sources, at a terminal."""

from __future__ import annotations

import io
import json
import sys
from typing import Any, NoReturn

import click

from virtman.access import Access
from virtman.client import Client
from virtman.coordinator import Shape
from virtman.errors import VirtmanError

_SOCKET = "/run/virtman/agent.sock"

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_token_file = click.option(
    "--token-file",
    default="",
    type=click.Path(dir_okay=False),
    help="File with a token of role operator, as Volt gave it out.",
)
_cafile = click.option(
    "--cafile",
    default="",
    type=click.Path(dir_okay=False),
    help="Certificates that vouch for Volt's; the system's if there is none.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--socket", default=_SOCKET, show_default=True, envvar="VIRTMAN_SOCKET", help="Of the agent."
)
@click.pass_context
def shell(context: click.Context, socket: str) -> None:
    """Devices for virtual machines, over images that nodes feed to each other."""
    context.obj = Client(socket)


@shell.command()
@click.argument("image")
@click.argument("vm")
@_json
@click.pass_obj
def create(client: Client, image: str, vm: str, as_json: bool) -> None:
    """Give VM a private device over IMAGE and print its path."""
    made = client.create(vm, image)
    click.echo(json.dumps(made) if as_json else made["device"])


@shell.command()
@click.argument("vms", metavar="VM...", nargs=-1, required=True)
@click.pass_obj
def destroy(client: Client, vms: tuple[str, ...]) -> None:
    """Take the devices of VMs away, with all that the VMs wrote."""
    for vm in vms:
        client.destroy(vm)


@shell.command("list")
@_json
@click.pass_obj
def list_vms(client: Client, as_json: bool) -> None:
    """List the VMs of this node."""
    found = client.list()
    if as_json:
        click.echo(json.dumps(found))
        return
    _table(("VM", "IMAGE", "DEVICE"), [(one["vm"], one["image"], one["device"]) for one in found])


@shell.group()
def image() -> None:
    """Images on this node."""


@image.command("list")
@_json
@click.pass_obj
def list_images(client: Client, as_json: bool) -> None:
    """List the images that are attached, who feeds them and who uses them."""
    found = client.images()
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [
        (one["image"], str(one["size"]), ",".join(one["parents"]), ",".join(one["instances"]))
        for one in found
    ]
    _table(("IMAGE", "BYTES", "PARENTS", "VMS"), rows)


@image.command()
@click.argument("name", metavar="IMAGE")
@click.pass_obj
def drop(client: Client, name: str) -> None:
    """Leave IMAGE now instead of after its keep time; its children are moved first."""
    client.drop(name)


@image.command()
@click.argument("name", metavar="IMAGE")
@_json
@click.pass_obj
def scrub(client: Client, name: str, as_json: bool) -> None:
    """Compare what the cache holds of IMAGE with its hashes, and drop what is wrong.

    What the cache lacks is fetched from the node's parents, and cached.
    """
    found = client.scrub(name)
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(f"{found['checked']} bytes checked, {len(found['dropped'])} blocks dropped")


@shell.group()
def source() -> None:
    """Raw files or block devices that are the source of an image."""


@source.command()
@click.argument("name", metavar="IMAGE")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@click.option("--host", required=True, help="Name of this storage node.")
@click.option("--ip", required=True, help="Address to serve on.")
@click.option("--port", default=3260, show_default=True, type=click.IntRange(1, 65535))
@click.option("--volt", required=True, help="URL of Volt.")
@_token_file
@_cafile
@click.option(
    "--shape", type=click.Choice(["forest", "tree", "star", "chain"]), help="Of the trees."
)
@click.option("--stripes", type=click.IntRange(1, 8), help="How many trees the image has.")
@click.option("--fanout", type=click.IntRange(0, 64), help="Hosts that a host feeds in a tree.")
@click.option(
    "--hash-tree/--no-hash-tree",
    default=True,
    show_default=True,
    help="Whether hosts can verify what they read; all of PATH is read once for that.",
)
def add(
    name: str,
    path: str,
    host: str,
    ip: str,
    port: int,
    volt: str,
    token_file: str,
    cafile: str,
    hash_tree: bool,
    **trees: Any,
) -> None:
    """Serve PATH, write-protected, as the source of IMAGE and register it. Run as root."""
    from virtman import source as sources  # noqa: PLC0415 - needs root's libraries

    access = Access(token_file, cafile)
    seen = sys.stderr if sys.stderr.isatty() else io.StringIO()
    with click.progressbar(length=1, label="hashing", file=seen) as bar:

        def show(done: int, size: int) -> None:
            bar.length = size
            bar.update(done)

        where = sources.add(
            name,
            path,
            sources.Storage(host, ip, port),
            volt,
            access,
            Shape(**trees),
            hashed=hash_tree,
            progress=show,
        )
    click.echo(f"{name}: {where.iqn} on {where.ip}:{where.port}")


@source.command()
@click.argument("name", metavar="IMAGE")
@click.option("--host", required=True, help="Name of this storage node.")
@click.option("--volt", required=True, help="URL of Volt.")
@_token_file
@_cafile
def remove(name: str, host: str, volt: str, token_file: str, cafile: str) -> None:
    """Make IMAGE unknown and stop serving it. Refused while hosts use it."""
    from virtman import source as sources  # noqa: PLC0415 - needs root's libraries

    sources.remove(name, host, volt, Access(token_file, cafile))


def _table(titles: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def main() -> NoReturn:
    """Run a command; an error is one line on standard error and exit status 1."""
    try:
        shell(standalone_mode=False)
    except VirtmanError as err:
        click.echo(f"virtman: {err} [{err.code}]", err=True)
        sys.exit(1)
    except click.ClickException as err:
        err.show()
        sys.exit(err.exit_code)
    except click.Abort:
        sys.exit(130)
    sys.exit(0)


if __name__ == "__main__":
    main()
