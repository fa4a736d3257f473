"""The noun ``source``: files and block devices that images come from, on a storage node."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from virtman.cmd import settings, table
from virtman.model.basis import MOST_RUNS, RUNS

if TYPE_CHECKING:
    from virtman.coordinator.interface import ImageInfo
    from virtman.source import Added


@click.group()
def source() -> None:
    """Files and block devices that images come from."""


@source.command()
@click.argument("name", metavar="IMAGE")
@click.argument("path", type=click.Path(exists=True, dir_okay=False))
@settings.volt
@settings.portal
@click.option(
    "--shape",
    type=click.Choice(["forest", "tree", "star", "chain", "ring"]),
    help="Shape of the image's trees; default: Volt's choice.",
)
@click.option(
    "--stripes",
    type=click.IntRange(1, 60),
    help="Number of trees, or of parts of a ring; default: Volt's choice.",
)
@click.option(
    "--fanout",
    type=click.IntRange(0, 64),
    help="Hosts that one host feeds in a tree, or of a group of a ring; default: Volt's choice.",
)
@click.option(
    "--hash-tree/--no-hash-tree",
    default=True,
    show_default=True,
    help="Whether hosts can verify what they read. All of PATH is read once for this.",
)
@click.option(
    "--version-of",
    metavar="OLD",
    help="Image of which this is a newer version. Its boot profiles are taken over for the pieces "
    "that are the same in both. This host must serve it too. By default what it is based on.",
)
@click.option(
    "--based-on",
    metavar="OTHER",
    multiple=True,
    help="Image of which this one has many blocks, such as an earlier version. Hosts that have "
    "OTHER read these blocks from it. This host must serve it too. Can be repeated, the best match "
    "first.",
)
@click.option(
    "--find-base",
    is_flag=True,
    help="The same with the image of which this one has most blocks, of all that this host serves.",
)
@click.option(
    "--no-base",
    is_flag=True,
    help="Take away what --based-on or --find-base told: hosts that attach IMAGE from now on read "
    "all of it as any image.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, MOST_RUNS),
    default=RUNS,
    show_default=True,
    help="Runs of blocks at most that hosts read from others. More make the table of the image's "
    "device longer; the shortest are left out.",
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
    version_of: str | None,
    based_on: tuple[str, ...],
    find_base: bool,
    no_base: bool,
    runs: int,
    **trees: Any,
) -> None:
    """Serve PATH as the source of IMAGE, and register it.

    Run as root. Hosts can only read it.
    """
    if bool(based_on) + find_base + no_base > 1:
        raise click.UsageError("give one of --based-on, --find-base and --no-base")
    if (based_on or find_base) and not hash_tree:
        raise click.UsageError("without a hash tree nothing tells what two images share")
    # needs root's libraries, and the others one of HTTP that takes long to load
    from virtman import source as sources  # noqa: PLC0415
    from virtman.coordinator.auth import Access  # noqa: PLC0415
    from virtman.coordinator.client import VoltClient  # noqa: PLC0415
    from virtman.coordinator.interface import Shape  # noqa: PLC0415

    access = Access(token_file, cafile)
    with _progress("hashing") as show:
        wanted = based_on or find_base or no_base
        added = sources.add(
            name,
            path,
            sources.Storage(host, ip, port),
            volt,
            access,
            Shape(**trees),
            hashed=hash_tree,
            layered=True,
            base=sources.Base(based_on, find_base, runs) if wanted else None,
            progress=show,
        )
    _tell(name, added, lambda: VoltClient(volt, host, 30, access).image(name))
    if find_base and not added.based_on:
        click.echo(f"no image of this host has much in common with {name}")
    for old in [version_of] if version_of else added.based_on:
        for one in sources.carry(old, name, host, volt, access):
            kept = f"profile {one.workload}: {one.kept} of {one.pieces} pieces of {old}"
            few = "are the same, too few: the next boots are recorded"
            click.echo(f"{kept} {'kept' if one.is_enough else few}")


def _tell(name: str, added: Added, look_up: Callable[[], ImageInfo]) -> None:
    """Print where an image is served, and on what it is based."""
    where = added.portal
    click.echo(f"{name}: {where.name} on {where.ip}:{where.port}")
    if added.based_on:
        image = look_up()
        assert image.based is not None
        shared = f"{table.rounded(image.based.shared)} of {table.rounded(image.size)}"
        click.echo(f"based on {', '.join(image.based.images)}: {shared} are there too")


@source.command()
@click.argument("layer")
@click.argument(
    "folder", type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path)
)
@settings.volt
@settings.portal
@click.option(
    "--from",
    "maker",
    metavar="NODE",
    default="",
    help="LAYER is being made at NODE: bring it while that goes on, and not afterwards.",
)
def take(
    layer: str,
    folder: Path,
    host: str,
    ip: str,
    port: int,
    volt: str,
    token_file: str,
    cafile: str,
    maker: str,
) -> None:
    """Bring LAYER into FOLDER from its node, and serve it.

    Run as root. It comes compressed, and goes on where an earlier attempt ended. From then on this
    storage node is the source of LAYER, and the node that made it may remove it. Nodes read what
    LAYER has in common with another image of this storage node from that one, if they have it.
    """
    from virtman import source as sources  # noqa: PLC0415 - see above
    from virtman.coordinator.auth import Access  # noqa: PLC0415
    from virtman.coordinator.client import VoltClient  # noqa: PLC0415
    from virtman.migration import taking  # noqa: PLC0415

    access = Access(token_file, cafile)
    with _progress("bringing") as show:
        where = sources.Storage(host, ip, port)
        added = taking.take(layer, folder, where, volt, access, show, maker)
    _tell(layer, added, lambda: VoltClient(volt, host, 30, access).image(layer))


@contextmanager
def _progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how much of something is done; give what is told of it."""
    seen = sys.stderr if sys.stderr.isatty() else io.StringIO()
    with click.progressbar(length=1, label=label, file=seen) as bar:

        def show(done: int, size: int) -> None:
            bar.length = size
            bar.update(done)

        yield show


@source.command()
@click.argument("name", metavar="IMAGE")
@settings.volt
@click.option(
    "--force",
    is_flag=True,
    help="Stop serving IMAGE although hosts need it, and none has all of it. What they have not "
    "read yet they cannot read until IMAGE is added again.",
)
def remove(name: str, host: str, volt: str, token_file: str, cafile: str, force: bool) -> None:
    """Stop serving IMAGE, and remove it from Volt unless hosts need it.

    Run as root. If hosts need IMAGE, one that has all of it stands for the source from then on. If
    none has, this is refused.
    """
    from virtman import source as sources  # noqa: PLC0415 - see above
    from virtman.coordinator.auth import Access  # noqa: PLC0415

    stays, home = sources.withdraw(name, host, volt, Access(token_file, cafile), forced=force)
    if not stays:
        click.echo(f"{name}: not served any more, and removed from Volt")
    elif home is not None:
        click.echo(f"{name}: not served any more; {home} stands for the source")
    else:
        click.echo(f"{name}: not served any more; no host has all of it")
