"""How volt-manage shows which images disks need, and lets go of those of hosts that are lost."""

import json

import click
from oslo_config import cfg

from volt.api import json_format
from volt.cmd import reported
from volt.cmd.table import table
from volt.db import upgrade
from volt.model.names import check_name
from volt.registry.holds import Holds


@click.group()
def hold() -> None:
    """Images that disks of hosts need."""


@hold.command("list")
@click.option("--image", help="List only who needs this image.")
@click.option("--host", help="List only what this host needs.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer of the REST API.")
@click.pass_obj
def index(options: cfg.ConfigOpts, image: str | None, host: str | None, as_json: bool) -> None:
    """List which hosts need which images.

    DISKS is how many VMs and snapshots of the image the host had when it last reported; 0: it waits
    for the image, to make its first one. HOST IS: heard, or gone, which is expired. What a host
    that is gone needs stays until it is back, or "hold release" says that it does not come back.
    IMAGE IS: known to Volt, or missing.
    """
    with reported():
        found = _holds(options).index(image, host)
    if as_json:
        click.echo(json.dumps({"holds": found}, indent=2, default=json_format.plain))
        return
    rows = [
        (
            one.image,
            one.host,
            one.disks,
            "gone" if one.silent is None else "heard",
            "known" if one.known else "missing",
            f"{one.since:%Y-%m-%d %H:%M:%S}",
        )
        for one in found
    ]
    table(("IMAGE", "HOST", "DISKS", "HOST IS", "IMAGE IS", "SINCE (UTC)"), rows)


@hold.command()
@click.argument("host")
@click.option("--image", help="Let go of this image only; default: all that HOST needs.")
@click.pass_obj
def release(options: cfg.ConfigOpts, host: str, image: str | None) -> None:
    """Let go of what a lost HOST needs.

    HOST has expired, and does not come back. Its images may be deleted then; should it come back
    after that, its VMs cannot start.
    """
    with reported():
        check_name("host", host)
        known = _holds(options)
        found = known.index(image, host)
        for one in found:
            if known.release(one.image, host):
                click.echo(f"image {one.image}: {one.disks} disks of host {host} let go")
    if not found:
        click.echo(f"host {host} needs {'no image' if image is None else f'no image {image}'}")


def _holds(options: cfg.ConfigOpts) -> Holds:
    return Holds(upgrade.opened(options.database.connection, options.database.busy_timeout))
