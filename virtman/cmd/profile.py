"""The noun ``profile``: which pieces of an image its VMs read when they boot, as Volt keeps it.

These commands ask Volt, not the agent: they run anywhere. ``record`` asks the agent.
"""

from __future__ import annotations

import contextlib
import io
import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import wraps
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from virtman.api.answers import RecordingAnswer
from virtman.api.client import Client
from virtman.cmd import complete, plot, settings, table
from virtman.cmd.options import as_json
from virtman.errors import ProfileForeign, ProfileInvalid, ProfileUnbound
from virtman.model import naming
from virtman.model.profile import BOOT, Profile, bands, rows
from virtman.model.profile_format import LARGEST, decode

if TYPE_CHECKING:
    from virtman.coordinator.client import VoltClient

_TIMEOUT = 30.0
_LOOK = 0.5


@click.group()
def profile() -> None:
    """Boot profiles: which pieces of an image its VMs read when they boot."""


def _name(kind: str) -> Callable[[click.Context, click.Parameter, str], str]:
    """Return what refuses a name that cannot be one."""
    return lambda context, parameter, name: naming.check(kind, name)


_image = click.argument(
    "image", metavar="IMAGE", callback=_name("image"), shell_complete=complete.images
)
_workload = click.option(
    "--workload",
    metavar="NAME",
    default=BOOT,
    show_default=True,
    callback=_name("workload"),
    help="Workload that the profile is of.",
)
_revision = click.option(
    "--revision", type=click.IntRange(1), metavar="N", help="Revision; default: the newest."
)


def _asking(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command Volt, where its options say that it is."""

    @wraps(command)
    def run(volt: str, token_file: str, cafile: str, **words: Any) -> None:
        # a library of HTTP, which takes long to load
        from virtman.coordinator.auth import Access  # noqa: PLC0415
        from virtman.coordinator.client import VoltClient  # noqa: PLC0415

        command(VoltClient(volt, "", _TIMEOUT, Access(token_file, cafile)), **words)

    made: Callable[..., None] = settings.asking(run)
    return made


@profile.command("list")
@_image
@as_json
@_asking
def list_profiles(volt: VoltClient, image: str, as_json: bool) -> None:
    """List the profiles of IMAGE: the newest revision of each workload."""
    found = volt.profiles(image)
    if as_json:
        listed = [{"workload": workload, **asdict(one)} for workload, one in found.items()]
        for one in listed:
            del one["host"]  # Volt says it in the history alone
        click.echo(json.dumps(listed))
        return
    table.table(
        ("WORKLOAD", "REVISION", "SIZE", "STORED"),
        [
            (workload, str(one.revision), table.size(one.bytes), one.stored_at)
            for workload, one in found.items()
        ],
    )


@profile.command()
@_image
@_workload
@as_json
@_asking
def history(volt: VoltClient, image: str, workload: str, as_json: bool) -> None:
    """List the revisions of a profile that Volt keeps, the newest first."""
    found = volt.profile_history(image, workload)
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found]))
        return
    table.table(
        ("REVISION", "SIZE", "STORED", "HOST"),
        [
            (str(one.revision), table.size(one.bytes), one.stored_at, one.host or "-")
            for one in found
        ],
    )


@profile.command()
@_image
@_workload
@_revision
@as_json
@_asking
def show(volt: VoltClient, image: str, workload: str, revision: int | None, as_json: bool) -> None:
    """Show when boots from IMAGE read how much of it."""
    content, _ = volt.profile_at(image, workload, revision)
    found = decode(content)
    head = _head(found)
    if as_json:
        read = {"bands": [asdict(band) for band in bands(found)], "wanted": found.wanted()}
        click.echo(json.dumps({"image": image, "workload": workload, **head, **read}))
        return
    click.echo(f"root hash: {head['root_hash']}")
    click.echo(f"runs: {head['runs']}")
    click.echo(f"pieces: {_pieces(head)}")
    click.echo(f"in at least half of the runs: {head['common']}")
    click.echo(f"runs that are kept: {head['latest']}")
    table.table(("SECONDS", "PIECES", "MIB", "SHARE"), rows(found))


@profile.command()
@_image
@click.argument("file", type=click.File("wb", atomic=True))
@_workload
@_revision
@_asking
def export(
    volt: VoltClient, image: str, file: BinaryIO, workload: str, revision: int | None
) -> None:
    """Write a profile of IMAGE to FILE, or to standard output for "-"."""
    content, _ = volt.profile_at(image, workload, revision)
    file.write(content)


@profile.command("import")
@_image
@click.argument("file", type=click.File("rb"))
@_workload
@_asking
def import_(volt: VoltClient, image: str, file: BinaryIO, workload: str) -> None:
    """Store FILE as IMAGE's newest profile; "-" is standard input.

    It must have been recorded from an image with the same root hash.
    """
    content = file.read(LARGEST + 1)
    found = _checked(content)
    tree = volt.image(image).tree
    if tree is None:
        raise ProfileUnbound(
            f"image {image} has no hash tree, so nothing would bind a profile to its data: "
            "remove it and add it with a hash tree"
        )
    if found.identity != tree.root:
        raise ProfileForeign(
            f"the file is of an image with root hash {found.identity}, image {image} has "
            f"{tree.root}: name the image that it is of, or record a new profile"
        )
    present = volt.profile(image, workload)
    volt.store_profile(image, workload, content, present and present[1])
    click.echo(
        f"profile {workload} of image {image}: runs: {found.runs}, pieces: {_pieces(_head(found))}"
    )


@profile.command()
@click.argument("vm", metavar="VM", shell_complete=complete.vms)
@click.option(
    "--workload",
    metavar="NAME",
    required=True,
    callback=_name("workload"),
    help="Workload that the profile is of.",
)
@click.option(
    "--for",
    "seconds",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="Record for so long; default: until this command is interrupted.",
)
@as_json
@click.pass_obj
def record(client: Client, vm: str, workload: str, seconds: int | None, as_json: bool) -> None:
    """Record what VM reads from now on, for a profile of its image.

    This command asks the agent of the node that VM is on. Only what has to be fetched is recorded,
    so begin when the node has just attached the image, before VM runs. What other VMs on the node
    read of the image meanwhile is recorded too. Interrupt the command, or destroy VM, to end it.
    """
    with _interruptible(), table.status_line(as_json=as_json) as show:
        try:
            found = _followed(client, client.record(vm, workload, seconds), show)
        except KeyboardInterrupt:
            found = _followed(client, client.end_recording(vm), show)
    if as_json:
        click.echo(json.dumps(found))
    elif found["state"] == "stored":
        click.echo(
            f"profile {workload} of image {found['image']}: runs: {found['runs']}, the last read "
            f"{_read(found)}"
        )
    if found["state"] == "failed":
        raise click.ClickException(f"nothing is stored: {found['detail']}")


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Have signals interrupt this command, also if a script started it in the background."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.default_int_handler) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _followed(
    client: Client, found: RecordingAnswer, show: Callable[[str], None]
) -> RecordingAnswer:
    """Return a recording once it is stored, or failed."""
    while found["state"] == "recording":
        show(f"{_read(found)} in {found['seconds']:.0f} s")
        time.sleep(_LOOK)
        found = client.recording(found["vm"])
    return found


def _read(found: RecordingAnswer) -> str:
    return f"{found['pieces']} pieces, {found['bytes'] / 2**20:.1f} MiB"


@profile.command()
@_image
@_workload
@_asking
def delete(volt: VoltClient, image: str, workload: str) -> None:
    """Delete a profile of IMAGE, with all its revisions. Needs a token of role operator."""
    volt.remove_profile(image, workload)


@profile.command("plot")
@_image
@click.argument("file", type=click.Path(dir_okay=False))
@_workload
@_revision
@_asking
def plot_profile(
    volt: VoltClient, image: str, file: str, workload: str, revision: int | None
) -> None:
    """Draw a profile of IMAGE as FILE, an SVG or PNG by its suffix.

    The time runs to the right, the offset in IMAGE upwards. The darker a piece, the more of the
    boots have read it. Needs matplotlib.
    """
    kind = PurePath(file).suffix.removeprefix(".").lower()
    if kind not in plot.FORMATS:
        raise click.UsageError(f"{file!r} must end with .svg or .png.")
    content, _ = volt.profile_at(image, workload, revision)
    found = decode(content)
    drawn = io.BytesIO()
    plot.draw(found, f"{image}, {workload}; runs: {found.runs}", drawn, kind)
    with click.open_file(file, "wb", lazy=True, atomic=True) as opened:
        opened.write(drawn.getvalue())


def _checked(content: bytes) -> Profile:
    """Return the profile in a file."""
    try:
        if len(content) > LARGEST:
            raise ProfileInvalid(f"no valid boot profile: it has more than {LARGEST} bytes")
        return decode(content)
    except ProfileInvalid as err:
        raise ProfileInvalid(f"{err}: export it again, or record a new one") from err


def _head(found: Profile) -> dict[str, Any]:
    listed = bands(found)
    return {
        "root_hash": found.identity,
        "runs": found.runs,
        "piece_size": found.piece_size,
        "band_ms": found.band_ms,
        "pieces": found.total,
        "bytes": sum(band.bytes for band in listed),
        "common": len(found.wanted()),
        "latest": len(found.latest),
    }


def _pieces(head: Mapping[str, Any]) -> str:
    size = table.rounded(head["piece_size"])
    return f"{head['pieces']} of {size}, {head['bytes'] / 2**20:.1f} MiB"
