"""The ``volt-manage`` command: works on Volt's database, without the REST API."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click
from oslo_config import cfg

from volt import conf
from volt.api import parsing
from volt.cmd import (
    SETTINGS,
    caps,
    config_files,
    copies,
    holds,
    imports,
    profiles,
    reported,
    tokens,
    version_option,
    warmups,
)
from volt.cmd.table import table
from volt.db import upgrade
from volt.db.engine import connect
from volt.model.drawing import draw
from volt.placement.rules import Shape
from volt.registry.batches import Turns
from volt.registry.hosts import Hosts
from volt.registry.placements import Placements
from volt.transport.options import source as source_options


@click.group(context_settings=SETTINGS)
@config_files
@version_option("volt-manage")
@click.pass_context
def main(context: click.Context, files: tuple[str, ...]) -> None:
    """Manage Volt's database, whether or not volt-api runs.

    A command is a noun and a verb: volt-manage image list.
    """
    with reported():
        context.obj = conf.load(files or None)


main.add_command(tokens.token)
main.add_command(profiles.profile)
main.add_command(caps.cap)
main.add_command(holds.hold)
main.add_command(imports.imports)


@main.group()
def db() -> None:
    """The database schema."""


@db.command("upgrade")
@click.pass_obj
def upgrade_schema(options: cfg.ConfigOpts) -> None:
    """Bring the database to the schema of this Volt."""
    with reported():
        upgrade.upgrade(connect(options.database.connection, options.database.busy_timeout))


@main.group()
def image() -> None:
    """Images that Volt knows."""


@image.command()
@click.argument("name")
@click.option(
    "--size", type=int, required=True, help="Size of the image in bytes, a multiple of 512."
)
@source_options
@click.option(
    "--shape",
    type=click.Choice([shape.value for shape in Shape]),
    default=Shape.FOREST.value,
    show_default=True,
    help="Shape of the image's trees.",
)
@click.option(
    "--stripes",
    type=click.IntRange(1, 60),
    help="Number of trees of a forest (default: 2) or of parts of a ring (16).",
)
@click.option(
    "--fanout",
    type=click.IntRange(1, 64),
    help="Hosts that one host feeds in a tree (usually 2), or of a group of a ring (64).",
)
@click.option(
    "--foreign-children",
    type=click.IntRange(0, 64),
    help="Limit for the hosts of other racks that one host feeds in a tree; default: no limit.",
)
@click.pass_obj
def add(
    options: cfg.ConfigOpts,
    *,
    name: str,
    size: int,
    shape: str,
    stripes: int | None,
    fanout: int | None,
    foreign_children: int | None,
    source: dict[str, Any],
) -> None:
    """Register image NAME. Its source must answer.

    If NAME is there already, it keeps the CHAP secret of its source.
    """
    with reported():
        portal = parsing.portal(source)
        new = parsing.new_image(
            name, size, Shape(shape), stripes, fanout, portal, None, foreign_children
        )
        _, is_new = copies.images(options).create(new, datetime.now(UTC), keeps_proof=True)
    click.echo(f"image {name} {'created' if is_new else 'was there already'}")


@image.command("list")
@click.pass_obj
def index(options: cfg.ConfigOpts) -> None:
    """List all images."""
    with reported():
        images = copies.images(options).index()
    rows = [
        (one.name, one.size, one.stripes, one.fanout, one.hosts, one.holds, one.copies)
        for one in images
    ]
    table(("NAME", "SIZE", "STRIPES", "FANOUT", "HOSTS", "HOLDS", "COPIES"), rows)


image.add_command(copies.show)
image.add_command(copies.hydrate)
image.add_command(copies.rehome)
image.add_command(warmups.warm)
image.add_command(warmups.index)


@main.group()
def host() -> None:
    """Hosts that report to Volt."""


@host.command("list")
@click.pass_obj
def hosts(options: cfg.ConfigOpts) -> None:
    """List all hosts.

    LINK is what a host's link carries in Mbit/s, and SILENT the seconds since the host reported.
    """
    rows: list[tuple[str, str, int | str, int, int, str]] = []
    last = ""
    with reported():
        known = _hosts(options)
        while page := known.index(last):
            for each in page:
                state = "draining" if each.draining else ""
                images = len(each.report.images)
                link = each.speed * 8 // 1_000_000 if each.speed else "-"
                rows.append((each.host, each.rack or "-", link, each.silent, images, state))
            last = page[-1].host
    table(("NAME", "RACK", "LINK", "SILENT", "IMAGES", "STATE"), rows)


@host.command()
@click.argument("name")
@click.pass_obj
def drain(options: cfg.ConfigOpts, name: str) -> None:
    """Move the children of host NAME, and give it no new ones."""
    with reported():
        _hosts(options).drain(name, True)
    click.echo(f"host {name} is draining")


@host.command()
@click.argument("name")
@click.pass_obj
def undrain(options: cfg.ConfigOpts, name: str) -> None:
    """Let host NAME feed others again."""
    with reported():
        _hosts(options).drain(name, False)
    click.echo(f"host {name} may feed others")


@host.command()
@click.pass_obj
def expire(options: cfg.ConfigOpts) -> None:
    """Expire the hosts that are silent for too long.

    However many there are: Volt itself expires none while most are silent.
    """
    with reported():
        gone = _hosts(options).expire_silent(options.heartbeat.expiry)
    click.echo(f"{gone} hosts expired")


@main.group()
def tree() -> None:
    """The trees by which hosts read images."""


@tree.command()
@click.argument("image")
@click.option("--json", "as_json", is_flag=True, help="Print the answer of the REST API.")
@click.pass_obj
def show(options: cfg.ConfigOpts, image: str, as_json: bool) -> None:
    """Draw the trees of IMAGE.

    An asterisk marks hosts that may feed others.
    """
    with reported():
        trees = asdict(copies.images(options).trees(image))
    click.echo(json.dumps(trees, indent=2) if as_json else draw(trees))


def _hosts(options: cfg.ConfigOpts) -> Hosts:
    engine = upgrade.opened(options.database.connection, options.database.busy_timeout)
    return Hosts(engine, Placements(engine, Turns()))


if __name__ == "__main__":
    main()
