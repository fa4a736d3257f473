"""How a command line names an image's source."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

_OPTIONS = (
    click.option("--source-ip", required=True, help="Address of the source's portal."),
    click.option(
        "--source-port", type=int, default=3260, show_default=True, help="TCP port of the portal."
    ),
    click.option("--source-iqn", required=True, help="iSCSI name of the source's target."),
    click.option("--source-lun", type=int, default=0, show_default=True, help="LUN of the image."),
    click.option(
        "--source-offset",
        type=int,
        default=0,
        show_default=True,
        help="Byte of the LUN where the image starts.",
    ),
)
_PREFIX = "source_"


def source(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command have these options, and get what they say as ``source``: a portal's JSON."""

    @wraps(command)
    def run(**options: Any) -> None:
        form = {
            name.removeprefix(_PREFIX): options.pop(name)
            for name in list(options)
            if name.startswith(_PREFIX)
        }
        command(source=form, **options)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run
