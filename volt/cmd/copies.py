"""How volt-manage has hosts copy all of an image, shows who has, and lets go of a source."""

import click
from oslo_config import cfg

from volt.cmd import reported
from volt.cmd.table import table
from volt.db import upgrade
from volt.model.copies import Copy
from volt.model.images import CopyPolicy, Image
from volt.model.names import check_name
from volt.registry.batches import Turns
from volt.registry.copies import Copies
from volt.registry.images import Images

_MOST = 10_000


@click.command()
@click.argument("name", metavar="IMAGE")
@click.pass_obj
def show(options: cfg.ConfigOpts, name: str) -> None:
    """Show IMAGE, whether it needs its source, and who has a copy."""
    with reported():
        found = images(options).show(name)
        copies = _copies(options).index(name)
    for title in ("name", "size", "shape", "stripes", "fanout", "hosts", "holds", "copies"):
        click.echo(f"{title}: {getattr(found, title)}")
    if found.layer is not None:
        click.echo(f"parent: {found.layer.parent}, with a disk of {found.layer.disk_size} bytes")
        click.echo(f"made by: {found.layer.maker or '-'}")
        if found.layer.suspended is not None:
            hardware = found.layer.suspended.hardware
            click.echo(f"suspended: {hardware.machine}, {hardware.cpu}, {hardware.memory} bytes")
            if found.layer.suspended.project:
                click.echo(f"project: {found.layer.suspended.project}")
    if found.basis is not None:
        names = ", ".join(found.basis.images)
        click.echo(f"based on: {names}, with {found.basis.shared} bytes in common")
    click.echo(f"source: {found.source.ip}")
    if found.home is not None:
        click.echo(f"home: {found.home}, which stands for the source")
    if found.hydrate is not None:
        who, when = _said(found.hydrate)
        click.echo(f"copied by {who}: {when}, rate {found.hydrate.rate}")
    click.echo(f"state: {_need(found)}")
    if copies:
        click.echo()
        rows = [(one.host, one.rack or "-", one.copied, _state(one)) for one in copies]
        table(("HOST", "RACK", "COPIED", "STATE"), rows)


def _count(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Parse a number of copies; None is all, and 0 what was not given."""
    if text is None:
        return 0
    if text == "all":
        return None
    if text.isdecimal() and 1 <= int(text) <= _MOST:
        return int(text)
    raise click.BadParameter(f"{text!r} is neither 'all' nor a number from 1 to {_MOST}")


@click.command()
@click.argument("name", metavar="IMAGE")
@click.option(
    "--copies",
    metavar="N|all",
    callback=_count,
    help="Have so many whole copies, on hosts that Volt chooses; default: all hosts.",
)
@click.option(
    "--after",
    type=click.IntRange(0, 1_000_000_000),
    metavar="SECONDS",
    help="Begin so many seconds after IMAGE came to a host, such as when its VMs have booted; "
    "default: at once.",
)
@click.option(
    "--rate",
    type=click.IntRange(0),
    default=0,
    help="Bytes a second at which each host may fetch it; default: no limit of its own.",
)
@click.option("--never", is_flag=True, help="Have no more copies made; those that are there stay.")
@click.pass_obj
def hydrate(
    options: cfg.ConfigOpts,
    *,
    name: str,
    copies: int | None,
    after: int | None,
    rate: int,
    never: bool,
) -> None:
    """Have hosts copy all of IMAGE, so that they need no parents.

    These are hosts that have IMAGE, and those that it comes to later: all of them, or as many as
    are wanted. If one goes, cannot copy IMAGE or gives its copy back, Volt chooses another.
    """
    is_wanted = copies != 0 or after is not None
    if is_wanted == never:
        raise click.UsageError("give --copies or --after or both, or --never")
    how = CopyPolicy(after or 0, rate, copies or None) if is_wanted else None
    with reported():
        images(options).hydrate(name, how)
    who, when = _said(how) if how else ("its hosts", "never")
    click.echo(f"image {name} is copied by {who}: {when}")


@click.command()
@click.argument("name", metavar="IMAGE")
@click.argument("host", required=False)
@click.option("--source", "to_source", is_flag=True, help="Have the source serve itself again.")
@click.pass_obj
def rehome(options: cfg.ConfigOpts, name: str, host: str | None, to_source: bool) -> None:
    """Have HOST, which has all of IMAGE, stand for the source of IMAGE.

    All hosts that the source feeds read from HOST instead, and new ones need the source no more.
    Should HOST go, another host with a whole copy takes its place.
    """
    if (host is None) != to_source:
        raise click.UsageError("name a HOST, or give --source")
    with reported():
        images(options).rehome(name, None if host is None else check_name("host", host))
    click.echo(f"image {name} comes from {host or 'its source'}")


def _said(how: CopyPolicy) -> tuple[str, str]:
    """Return in words who copies an image, and when."""
    when = f"{how.after} s after it came" if how.after else "as soon as it comes"
    return "its hosts" if how.copies is None else f"{how.copies} of its hosts", when


def _need(image: Image) -> str:
    if image.copies:
        return "independent of its source"
    return "needs its source: no host has all of it"


def _state(copy: Copy) -> str:
    if copy.whole:
        return "whole"
    if copy.declines:
        return "stopped"
    return "copying" if copy.copied else "chosen"


def images(options: cfg.ConfigOpts) -> Images:
    """Return the use cases of images over the database that is configured."""
    engine = upgrade.opened(options.database.connection, options.database.busy_timeout)
    return Images(engine, Turns(), options.source.timeout)


def _copies(options: cfg.ConfigOpts) -> Copies:
    engine = upgrade.opened(options.database.connection, options.database.busy_timeout)
    return Copies(engine, Turns())
