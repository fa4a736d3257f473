"""How volt-manage reads its command line, without the REST API."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click
from oslo_config import cfg

from volt import conf
from volt.api import schemas
from volt.cmd import config_files, reported, tokens
from volt.db import upgrade
from volt.db.engine import connect
from volt.model.drawing import draw
from volt.placement.topology import Shape
from volt.registry.hosts import Roster
from volt.registry.trees import Coordinator
from volt.transport.options import source as source_options


@click.group()
@config_files
@click.pass_context
def main(context: click.Context, files: tuple[str, ...]) -> None:
    """Manage Volt's database."""
    with reported():
        context.obj = conf.load(files or None)


main.add_command(tokens.token)


@main.group()
def db() -> None:
    """Manage the database schema."""


@db.command("upgrade")
@click.pass_obj
def upgrade_schema(options: cfg.ConfigOpts) -> None:
    """Bring the schema to the newest revision."""
    with reported():
        upgrade.upgrade(connect(options.database.connection, options.database.busy_timeout))


@main.group()
def image() -> None:
    """Manage images."""


@image.command()
@click.argument("name")
@click.option("--size", type=int, required=True, help="Bytes, a multiple of 512.")
@source_options
@click.option(
    "--shape",
    type=click.Choice([shape.value for shape in Shape]),
    default=Shape.FOREST.value,
    show_default=True,
)
@click.option("--stripes", type=click.IntRange(1, 8), help="Trees of a forest; 2 if not given.")
@click.option("--fanout", type=click.IntRange(1, 64), help="Hosts that one host feeds; usually 2.")
@click.option(
    "--foreign-children",
    type=click.IntRange(0, 64),
    help="Hosts of other racks that one host feeds in a tree, at most.",
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
    """Store image NAME, whose source must answer."""
    with reported():
        portal = schemas.portal(source)
        new = schemas.new_image(
            name, size, Shape(shape), stripes, fanout, portal, None, foreign_children
        )
        _, is_new = _coordinator(options).create_image(new, datetime.now(UTC))
    click.echo(f"image {name} {'created' if is_new else 'was there already'}")


@image.command("list")
@click.pass_obj
def index(options: cfg.ConfigOpts) -> None:
    """List all images."""
    with reported():
        images = _coordinator(options).images()
    row = "{:<48} {:>16} {:>7} {:>6} {:>6}"
    click.echo(row.format("NAME", "SIZE", "STRIPES", "FANOUT", "HOSTS"))
    for each in images:
        click.echo(row.format(each.name, each.size, each.stripes, each.fanout, each.hosts))


@main.group()
def host() -> None:
    """Manage hosts."""


@host.command("list")
@click.pass_obj
def hosts(options: cfg.ConfigOpts) -> None:
    """List all hosts."""
    row = "{:<48} {:<16} {:>9} {:>6} {:<8}"
    click.echo(row.format("NAME", "RACK", "SILENT", "IMAGES", "STATE"))
    last = ""
    with reported():
        roster = _roster(options)
        while page := roster.hosts(last):
            for each in page:
                state = "draining" if each.draining else ""
                images = len(each.report.images)
                click.echo(row.format(each.host, each.rack or "-", each.silent, images, state))
            last = page[-1].host


@host.command()
@click.argument("name")
@click.pass_obj
def drain(options: cfg.ConfigOpts, name: str) -> None:
    """Give host NAME no new children, and move those that it has."""
    with reported():
        _roster(options).drain(name, True)
    click.echo(f"host {name} is draining")


@host.command()
@click.argument("name")
@click.pass_obj
def undrain(options: cfg.ConfigOpts, name: str) -> None:
    """Let host NAME feed others again."""
    with reported():
        _roster(options).drain(name, False)
    click.echo(f"host {name} may feed others")


@main.group()
def tree() -> None:
    """Look at attach trees."""


@tree.command()
@click.argument("image")
@click.option("--json", "as_json", is_flag=True, help="Print what the REST API answers.")
@click.pass_obj
def show(options: cfg.ConfigOpts, image: str, as_json: bool) -> None:
    """Draw the trees of IMAGE; an asterisk marks hosts that may feed others."""
    with reported():
        trees = asdict(_coordinator(options).trees(image))
    click.echo(json.dumps(trees, indent=2) if as_json else draw(trees))


def _coordinator(options: cfg.ConfigOpts) -> Coordinator:
    engine = upgrade.opened(options.database.connection, options.database.busy_timeout)
    return Coordinator(engine, options.source.timeout)


def _roster(options: cfg.ConfigOpts) -> Roster:
    engine = upgrade.opened(options.database.connection, options.database.busy_timeout)
    return Roster(engine, Coordinator(engine, options.source.timeout))


if __name__ == "__main__":
    main()
