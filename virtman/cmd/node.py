"""The noun ``node``: this node as a whole."""

from __future__ import annotations

import json
import sys

import click

from virtman.api.client import Client
from virtman.cmd.options import as_json

_DIFFERS = 3


@click.group()
def node() -> None:
    """This node as a whole."""


@node.command()
@click.option("--repair", is_flag=True, help="Repair what differs.")
@as_json
@click.pass_obj
def check(client: Client, repair: bool, as_json: bool) -> None:
    """Compare devices, the agent's records and what Volt says.

    Exit status 3 means that differences are left.
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
