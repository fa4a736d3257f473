"""How volt-manage lists boot profiles and takes them from one Volt to another."""

import json
from datetime import UTC, datetime
from typing import BinaryIO

import click
from oslo_config import cfg

from volt.api import json_format
from volt.cmd import reported
from volt.cmd.table import table
from volt.db import upgrade
from volt.model.names import check_name
from volt.model.profiles import LARGEST, parse
from volt.registry.batches import Turns
from volt.registry.profiles import Profiles


@click.group()
def profile() -> None:
    """Boot profiles, which say what of an image a workload reads first."""


_image = click.argument("image")
_workload = click.argument("workload")
_json = click.option("--json", "as_json", is_flag=True, help="Print the answer of the REST API.")


@profile.command("list")
@_image
@_json
@click.pass_obj
def index(options: cfg.ConfigOpts, image: str, as_json: bool) -> None:
    """List the newest profile of each workload of IMAGE."""
    with reported():
        found = _profiles(options).index(image)
    if as_json:
        _print({"profiles": found})
        return
    rows = [(each.workload, each.revision, each.bytes, _time(each.stored_at)) for each in found]
    table(("WORKLOAD", "REVISION", "BYTES", "STORED_AT"), rows)


@profile.command()
@_image
@_workload
@_json
@click.pass_obj
def history(options: cfg.ConfigOpts, image: str, workload: str, as_json: bool) -> None:
    """List the kept revisions of a profile, the newest first."""
    with reported():
        found = _profiles(options).history(image, workload)
    if as_json:
        _print({"revisions": found})
        return
    rows = [(each.revision, each.bytes, _time(each.stored_at), each.host or "-") for each in found]
    table(("REVISION", "BYTES", "STORED_AT", "HOST"), rows)


@profile.command()
@_image
@_workload
@click.argument("file", type=click.File("wb", atomic=True))
@click.option("--revision", type=click.IntRange(1), help="Revision to write; default: the newest.")
@click.pass_obj
def export(
    options: cfg.ConfigOpts, image: str, workload: str, file: BinaryIO, revision: int | None
) -> None:
    """Write a profile to FILE. It is IMAGE's of WORKLOAD; "-" is standard output."""
    with reported():
        content, _ = _profiles(options).show(image, workload, revision)
    file.write(content)


@profile.command("import")
@_image
@_workload
@click.argument("file", type=click.File("rb"))
@click.pass_obj
def import_(options: cfg.ConfigOpts, image: str, workload: str, file: BinaryIO) -> None:
    """Store FILE as IMAGE's newest profile of WORKLOAD. It must be a profile of this image."""
    with reported():
        new = parse(file.read(LARGEST + 1))
        check_name("workload", workload)
        stored, _ = _profiles(options).store(image, workload, new, datetime.now(UTC))
    click.echo(f"profile {workload} of image {image} is at revision {stored.revision}")


@profile.command()
@_image
@_workload
@click.pass_obj
def delete(options: cfg.ConfigOpts, image: str, workload: str) -> None:
    """Delete IMAGE's profile of WORKLOAD, with all its revisions."""
    with reported():
        was_there = _profiles(options).remove(image, workload)
    click.echo(f"profile {workload} of image {image} {'deleted' if was_there else 'was not there'}")


def _profiles(options: cfg.ConfigOpts) -> Profiles:
    engine = upgrade.opened(options.database.connection, options.database.busy_timeout)
    return Profiles(engine, Turns())


def _time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _print(answer: object) -> None:
    click.echo(json.dumps(answer, indent=2, default=json_format.plain))
