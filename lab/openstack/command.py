"""The cloud on the command line: python -m lab openstack up, status, client, down."""

import sys

import click

from lab.openstack.bed import OpenStack

NAME = click.option("--name", default="openstack", show_default=True, help="Which bed.")


@click.group()
def openstack() -> None:
    """A real OpenStack on a bed: its services, storage and compute nodes, and VirtMan."""


@openstack.command()
@NAME
def up(name: str) -> None:
    """Start it and leave it running."""
    OpenStack(name).up(lambda step: click.echo(f"== {step}", err=True))


@openstack.command()
@NAME
def down(name: str) -> None:
    """End it and remove all of it, even when the lab that started it was killed."""
    left = OpenStack(name).bed.down()
    for line in left:
        click.echo(line, err=True)
    sys.exit(1 if left else 0)
