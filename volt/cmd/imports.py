"""How volt-manage shows which images hosts wait for, and has those tried anew that failed."""

import json

import click
from oslo_config import cfg

from volt.api import json_format
from volt.cmd import reported
from volt.cmd.table import table
from volt.db import upgrade
from volt.model.names import check_name
from volt.registry.imports import Imports


@click.group("import")
def imports() -> None:
    """Images that hosts wait for."""


@imports.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the answer of the REST API.")
@click.pass_obj
def index(options: cfg.ConfigOpts, as_json: bool) -> None:
    """List images that hosts wait for, and how far they are.

    WAITING is how many hosts wait. STATE is wanted while no importer has begun. DONE and TOTAL are
    bytes of what DETAIL says; if the import failed, DETAIL says why. SILENT is the seconds since
    the importer said so.
    """
    with reported():
        found = _imports(options).index()
    if as_json:
        click.echo(json.dumps({"imports": found}, indent=2, default=json_format.plain))
        return
    rows = [
        (
            one.image,
            one.state.value,
            one.importer or "-",
            one.waiting,
            one.done,
            one.total,
            "-" if one.silent is None else one.silent,
            one.detail,
        )
        for one in found
    ]
    table(("IMAGE", "STATE", "IMPORTER", "WAITING", "DONE", "TOTAL", "SILENT", "DETAIL"), rows)


@imports.command()
@click.argument("image")
@click.pass_obj
def retry(options: cfg.ConfigOpts, image: str) -> None:
    """Have IMAGE tried anew now, if hosts wait for it."""
    with reported():
        _imports(options).retry(check_name("image", image))
    click.echo(f"image {image} is tried anew once a host waits for it")


def _imports(options: cfg.ConfigOpts) -> Imports:
    return Imports(upgrade.opened(options.database.connection, options.database.busy_timeout))
