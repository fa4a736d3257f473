"""Volt's commands, and the option by which all of them read their configuration."""

import click

config_files = click.option(
    "--config-file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Read options from this file instead of /etc/volt/volt.conf.",
)
