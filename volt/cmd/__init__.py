"""What Volt's commands share: options, their version, and how they refuse."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import click
from oslo_config import cfg

from volt.errors import VoltError

config_files = click.option(
    "--config-file",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Read options from this file instead of /etc/volt/volt.conf.",
)
SETTINGS = {"help_option_names": ["-h", "--help"]}

_CHECKOUT = "(not installed: run from a source tree)"


def version_option(program: str) -> Callable[[Any], Any]:
    """Return the option ``--version`` of a program."""

    def show(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
        if asked and not context.resilient_parsing:
            try:
                version = metadata.version("virtman")
            except metadata.PackageNotFoundError:
                version = _CHECKOUT
            click.echo(f"{program} {version}")
            context.exit()

    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print the version.",
    )


@contextmanager
def reported() -> Iterator[None]:
    """Turn what Volt refuses into a message and exit status 1."""
    try:
        yield
    except (VoltError, cfg.Error) as err:
        raise click.ClickException(str(err)) from err
