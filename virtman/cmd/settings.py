"""What commands take from the configuration file: a storage node's name and address, and Volt.

A flag on the command line comes first, then the file, then a default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Decorator = Callable[[Any], Any]


class _Needed(click.Option):
    """An option that has to come from somewhere.

    :param remedy: what to do if it does not
    """

    def __init__(self, *args: Any, remedy: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.remedy = remedy

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Say what is missing and what to do."""
        found = super().process_value(ctx, value)
        if not found and not ctx.resilient_parsing:
            raise click.UsageError(f"Missing option '{self.opts[0]}': {self.remedy}.", ctx)
        return found


def _read(context: click.Context, parameter: click.Parameter, files: tuple[str, ...]) -> None:
    """Make what the files say the defaults of the options that follow."""
    if context.resilient_parsing:
        return
    # takes long to load, and completion and other nouns do without
    from oslo_config import cfg  # noqa: PLC0415

    from virtman import conf as options  # noqa: PLC0415

    conf = options.register(cfg.ConfigOpts())
    conf.set_default("url", None, group="volt")  # a Volt that nobody named is none
    try:
        named = [word for file in files for word in ("--config-file", file)]
        conf(named, project="virtman", prog=context.find_root().info_name)
        context.default_map = {
            "host": conf.agent.host,
            "ip": conf.export.ip,
            "port": conf.export.port,
            "volt": conf.volt.url,
            "token_file": conf.volt.token_file,
            "cafile": conf.volt.cafile,
        }
    except cfg.Error as err:
        raise click.ClickException(str(err)) from err


def _all(*options: Decorator) -> Decorator:
    """Return one decorator that adds these options, in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _volt(*, names: tuple[Decorator, ...] = (), token: str) -> Decorator:
    """Return the options that say where Volt is, and how it knows who asks.

    :param names: options that come right after the configuration file
    :param token: which token is needed
    """
    return _all(
        click.option(
            "--config-file",
            metavar="FILE",
            multiple=True,
            type=click.Path(exists=True, dir_okay=False),
            is_eager=True,
            expose_value=False,
            callback=_read,
            help="Read the options below from this file; default: /etc/virtman/virtman.conf if "
            "there is one.",
        ),
        *names,
        click.option(
            "--volt",
            metavar="URL",
            cls=_Needed,
            remedy="give it, or set [volt] url in the configuration file",
            help="URL of Volt; default: [volt] url.",
        ),
        click.option(
            "--token-file",
            metavar="FILE",
            default="",
            type=click.Path(dir_okay=False),
            help=f"File with {token}; default: [volt] token_file.",
        ),
        click.option(
            "--cafile",
            metavar="FILE",
            default="",
            type=click.Path(dir_okay=False),
            help="File with CA certificates to verify Volt's with; default: [volt] cafile, or "
            "those that the system trusts.",
        ),
    )


volt = _volt(
    names=(
        click.option(
            "--host",
            metavar="NAME",
            help="Name of this storage node; default: [agent] host, which is the host name.",
        ),
    ),
    token="a token of role operator",  # noqa: S106 - says which
)
asking = _volt(token="a token for Volt")  # noqa: S106
portal = _all(
    click.option(
        "--ip",
        metavar="ADDRESS",
        cls=_Needed,
        remedy="give it, or set [export] ip in the configuration file",
        help="Address to serve on; default: [export] ip.",
    ),
    click.option(
        "--port",
        type=click.IntRange(1, 65535),
        help="Port of the iSCSI target; default: [export] port, which is 3260.",
    ),
)
