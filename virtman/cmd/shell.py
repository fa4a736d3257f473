"""The ``virtman`` command: the agent's verbs, and images' sources, at a terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import click

from virtman.api.answers import MoveAnswer, SnapshotAnswer, VmAnswer, VolumeAnswer
from virtman.api.client import Client
from virtman.errors import VirtmanError

_DIFFERS = 3
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


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12})([KMGT]?)", text)
    if not match:
        raise click.BadParameter(f"{text!r} is no size: use bytes, or a number and K, M, G or T")
    factor: int = 1024 ** " KMGT".index(match[2] or " ")
    return int(match[1]) * factor


_quota = click.option(
    "--quota", type=_size, help="What its stores may take, such as 10G; 0 for no limit."
)


@shell.command()
@click.argument("names", metavar="[IMAGE] VM", nargs=-1, required=True)
@click.option("--from-snapshot", "snapshot", default="", help="Begin at this snapshot.")
@_quota
@click.option(
    "--store", default="", help="Block device that takes what VM writes, such as a Cinder volume."
)
@_json
@click.pass_obj
def create(
    client: Client,
    names: tuple[str, ...],
    snapshot: str,
    quota: int | None,
    store: str,
    as_json: bool,
) -> None:
    """Give VM a private device over IMAGE, or as of a snapshot, and print its path."""
    image, vm = names if len(names) == 2 else ("", names[0])
    if len(names) > 2:
        raise click.UsageError(f"Got unexpected extra argument ({names[2]})")
    if not image and not snapshot:
        raise click.UsageError("Missing argument 'VM', or option '--from-snapshot'.")
    made = client.create(vm, image, snapshot=snapshot, quota=quota, store=store)
    click.echo(json.dumps(made) if as_json else made["device"])


@shell.command()
@click.argument("vms", metavar="VM...", nargs=-1, required=True)
@click.option("--drop-image", is_flag=True, help="Leave images that no VM uses then, now.")
@click.pass_obj
def destroy(client: Client, vms: tuple[str, ...], drop_image: bool) -> None:
    """Take the devices of VMs away, with all that they wrote. Images and snapshots stay."""
    images = {client.show(vm)["image"] for vm in vms} if drop_image else set()
    for vm in vms:
        client.destroy(vm)
    for one in client.images():
        if one["image"] in images and not one["instances"]:
            client.drop(one["image"])


@shell.command("list")
@_json
@click.pass_obj
def list_vms(client: Client, as_json: bool) -> None:
    """List the VMs of this node."""
    found = client.list()
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [
        (one["vm"], one["image"], one["state"], _bytes(one["taken"]), _limit(one["quota"]),
         one["device"])
        for one in found
    ]  # fmt: skip
    _table(("VM", "IMAGE", "STATE", "TAKEN", "QUOTA", "DEVICE"), rows)


@shell.command()
@click.argument("vm")
@_json
@click.pass_obj
def show(client: Client, vm: str, as_json: bool) -> None:
    """Show one VM: its device, its exception stores and its snapshots."""
    found = client.show(vm)
    if as_json:
        click.echo(json.dumps(found))
        return
    _fields(found, ("vm", "image", "device", "size", "state"))
    click.echo(f"taken: {_bytes(found['taken'])} of {_limit(found['quota'])}")
    _stores(found)
    click.echo(f"snapshots: {', '.join(found['snapshots']) or '-'}")


@shell.command()
@click.argument("vm")
@click.argument("quota", type=_size)
@click.pass_obj
def limit(client: Client, vm: str, quota: int) -> None:
    """Let the stores of VM take QUOTA, such as 10G; 0 for no limit."""
    client.limit(vm, quota)


_to = click.option("--to", "host", required=True, help="Host that takes it.")


@shell.command()
@click.argument("vm")
@_to
@click.option("--as", "name", default="", help="Name of the copy; the same if not given.")
@_json
@click.pass_obj
def clone(client: Client, vm: str, host: str, name: str, as_json: bool) -> None:
    """Copy VM, as of now, to another host; it goes on running here."""
    client.clone(vm, host, name)
    _follow(client, vm, as_json=as_json)


@shell.command()
@click.argument("vm")
@_to
@click.option("--live", is_flag=True, help="Hand it over only by 'virtman move finish'.")
@_json
@click.pass_obj
def migrate(client: Client, vm: str, host: str, live: bool, as_json: bool) -> None:
    """Move VM to another host; it can use its device here until all is there."""
    client.migrate(vm, host, live=live)
    _follow(client, vm, ready=live, as_json=as_json)


@shell.group()
def move() -> None:
    """Moves: VMs, or copies of them, on their way to other hosts."""


@move.command("list")
@_json
@click.pass_obj
def list_moves(client: Client, as_json: bool) -> None:
    """List the moves from this host, those that ended since its agent started too."""
    found = client.moves()
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [
        (one["vm"], one["kind"], one["host"], one["as"], one["state"], str(one["sent"]),
         str(one["left"]), one["note"])
        for one in found
    ]  # fmt: skip
    _table(("VM", "KIND", "TO", "AS", "STATE", "SENT", "LEFT", "NOTE"), rows)


@move.command("watch")
@click.argument("vm")
@_json
@click.pass_obj
def watch_move(client: Client, vm: str, as_json: bool) -> None:
    """Wait until VM is the other host's, or stays."""
    _follow(client, vm, as_json=as_json)


@move.command("finish")
@click.argument("vm")
@_json
@click.pass_obj
def finish_move(client: Client, vm: str, as_json: bool) -> None:
    """Hand over VM, which moves live, once its hypervisor here has let go of it."""
    client.finish_move(vm)
    _follow(client, vm, as_json=as_json)


@move.command("cancel")
@click.argument("vm")
@click.pass_obj
def cancel_move(client: Client, vm: str) -> None:
    """Have VM stay on its host. On the other one: do not take it."""
    client.cancel_move(vm)


def _follow(client: Client, vm: str, *, ready: bool = False, as_json: bool) -> None:
    """Show how a move goes on, and how it ends."""
    shows = sys.stderr.isatty() and not as_json

    def show(now: MoveAnswer) -> None:
        if shows:
            state = now["note"] or f"{now['sent']} bytes sent, {now['left']} left"
            click.echo(f"\r{now['state']}, round {now['round']}: {state}\x1b[K", err=True, nl=False)

    try:
        ended = client.await_move(vm, show, ready=ready)
    finally:
        if shows:
            click.echo(err=True)
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


@shell.group()
def snapshot() -> None:
    """Snapshots: VMs' data as of a moment."""


@snapshot.command("create")
@click.argument("vm")
@click.argument("name", metavar="SNAPSHOT")
@_json
@click.pass_obj
def create_snapshot(client: Client, vm: str, name: str, as_json: bool) -> None:
    """Keep the data of VM as of now, while it runs."""
    made = client.snapshot(vm, name)
    if as_json:
        click.echo(json.dumps(made))


@snapshot.command("list")
@click.argument("vm", default="")
@_json
@click.pass_obj
def list_snapshots(client: Client, vm: str, as_json: bool) -> None:
    """List all snapshots, or those of VM; the oldest first."""
    found = client.snapshots(vm)
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [(one["snapshot"], one["vm"], one["image"], one["created_at"]) for one in found]
    _table(("SNAPSHOT", "VM", "IMAGE", "CREATED"), rows)


@snapshot.command("show")
@click.argument("name", metavar="SNAPSHOT")
@_json
@click.pass_obj
def show_snapshot(client: Client, name: str, as_json: bool) -> None:
    """Show one snapshot and the exception stores that it consists of."""
    found = client.show_snapshot(name)
    if as_json:
        click.echo(json.dumps(found))
        return
    _fields(found, ("snapshot", "vm", "image", "size", "created_at"))
    _stores(found)


@snapshot.command()
@click.argument("vm")
@click.argument("name", metavar="SNAPSHOT")
@click.pass_obj
def rollback(client: Client, vm: str, name: str) -> None:
    """Have VM begin anew at SNAPSHOT. Refused while its device is open."""
    client.rollback(vm, name)


@snapshot.command("delete")
@click.argument("names", metavar="SNAPSHOT...", nargs=-1, required=True)
@click.pass_obj
def delete_snapshots(client: Client, names: tuple[str, ...]) -> None:
    """Forget snapshots; what no VM and no other snapshot needs goes."""
    for name in names:
        client.delete_snapshot(name)


@shell.group()
def image() -> None:
    """Images on this node."""


@image.command("list")
@_json
@click.pass_obj
def list_images(client: Client, as_json: bool) -> None:
    """List the images that are attached, how VMs read them, who feeds them and who uses them."""
    found = client.images()
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [
        (
            one["image"],
            str(one["size"]),
            "warm" if one["warm"] else "cold",
            ",".join(one["parents"]),
            ",".join(one["instances"]),
        )
        for one in found
    ]
    _table(("IMAGE", "BYTES", "STATE", "PARENTS", "VMS"), rows)


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

    What the cache lacks of IMAGE is fetched for that.
    """
    found = client.scrub(name)
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(f"{found['checked']} bytes checked, {len(found['dropped'])} blocks dropped")


@shell.group()
def cache() -> None:
    """Volumes of others, before which this node's cache group is put."""


@cache.command()
@click.argument("device")
@click.option(
    "--mode",
    type=click.Choice(["writethrough", "writeback"]),
    default="writethrough",
    show_default=True,
    help="With writeback, a cache that dies takes along what is not on DEVICE yet.",
)
@_json
@click.pass_obj
def attach(client: Client, device: str, mode: str, as_json: bool) -> None:
    """Put the cache before DEVICE, and print the path by which it is used from now on."""
    made = client.attach(device, mode)
    click.echo(json.dumps(made) if as_json else made["device"])


@cache.command()
@click.argument("device")
@click.pass_obj
def detach(client: Client, device: str) -> None:
    """Give DEVICE back, once what only the cache has is written to it."""

    def show(volume: VolumeAnswer) -> None:
        click.echo(f"{volume['dirty']} bytes to go", err=True)

    client.detach(device, show)


@cache.command("list")
@_json
@click.pass_obj
def list_cached(client: Client, as_json: bool) -> None:
    """List the volumes that have the cache before them, and what it did for them."""
    found = client.cached()
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [
        (one["volume"], one["mode"], one["state"], str(one["dirty"]), str(one["cache"]["hits"]),
         str(one["cache"]["misses"]), one["device"])
        for one in found
    ]  # fmt: skip
    _table(("VOLUME", "MODE", "STATE", "DIRTY", "HITS", "MISSES", "DEVICE"), rows)


@shell.command()
@click.option("--repair", is_flag=True, help="Mend what differs.")
@_json
@click.pass_obj
def check(client: Client, repair: bool, as_json: bool) -> None:
    """Compare what the kernel has, what the agent has written down and what Volt says.

    Exit status 3 says that differences are left.
    """
    outcome = client.check(repair=repair)
    if as_json:
        click.echo(json.dumps(outcome))
    else:
        left = [(one["code"], one["what"]) for one in outcome["left"]]
        for one in outcome["found"]:
            mended = "" if (one["code"], one["what"]) in left else " [repaired]"
            click.echo(f"{one['code']}: {one['what']}{mended}")
            click.echo(f"  {one['meaning']}; repair: {one['repair']}")
        click.echo(f"{len(outcome['found'])} found, {len(left)} left")
    if outcome["left"]:
        sys.exit(_DIFFERS)


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
    # needs root's libraries, and the others one of HTTP that takes long to load
    from virtman import source as sources  # noqa: PLC0415
    from virtman.coordinator.auth import Access  # noqa: PLC0415
    from virtman.coordinator.interface import Shape  # noqa: PLC0415

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
    click.echo(f"{name}: {where.name} on {where.ip}:{where.port}")


@source.command()
@click.argument("name", metavar="IMAGE")
@click.option("--host", required=True, help="Name of this storage node.")
@click.option("--volt", required=True, help="URL of Volt.")
@_token_file
@_cafile
def remove(name: str, host: str, volt: str, token_file: str, cafile: str) -> None:
    """Make IMAGE unknown and stop serving it. Refused while hosts use it."""
    from virtman import source as sources  # noqa: PLC0415 - see above
    from virtman.coordinator.auth import Access  # noqa: PLC0415

    sources.remove(name, host, volt, Access(token_file, cafile))


def _bytes(number: int | None) -> str:
    return "-" if number is None else str(number)


def _limit(quota: int) -> str:
    return str(quota) if quota else "-"


def _fields(found: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        click.echo(f"{name}: {found[name]}")


def _stores(found: VmAnswer | SnapshotAnswer) -> None:
    for one in found["stores"]:
        merging = ", being merged into the one before" if one["merging"] else ""
        click.echo(f"store: {one['path']}, {one['allocated']} bytes{merging}")


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
