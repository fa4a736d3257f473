"""What Volt's commands share: where their options come from, and how they refuse."""

from collections.abc import Iterator
from contextlib import contextmanager

import click
from oslo_config import cfg

from volt.errors import VoltError

config_files = click.option(
    "--config-file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Read options from this file instead of /etc/volt/volt.conf.",
)


@contextmanager
def reported() -> Iterator[None]:
    """Turn what Volt refuses into a message and exit status 1."""
    try:
        yield
    except (VoltError, cfg.Error) as err:
        raise click.ClickException(str(err)) from err
