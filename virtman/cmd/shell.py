"""The ``virtman`` command: which nouns it has, and how it ends."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NoReturn

import click

from virtman.api.client import Client
from virtman.cmd.options import version_option
from virtman.errors import VirtmanError

_SOCKET = "/run/virtman/agent.sock"
_NOUNS = (
    "cache", "checkpoint", "image", "layer", "move", "node", "profile", "snapshot", "source", "vm",
)  # fmt: skip
_SHORT = ("create", "destroy", "list", "clone", "migrate", "suspend-image", "resume")


def _command(name: str) -> click.Command:
    if name in _SHORT:
        return _noun("vm").commands[name]
    return _noun("layer").commands["create"] if name == "commit" else _noun(name)


def _noun(name: str) -> click.Group:
    noun: click.Group = getattr(import_module(f"virtman.cmd.{name}"), name)
    return noun


class _Nouns(click.Group):
    """Nouns, each with a module of its own, and short forms of some of their commands.

    Only what a command needs is loaded: a VM that is created or resumed waits for it.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names."""
        return sorted((*_NOUNS, *_SHORT, "commit"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return what a name stands for; None if it is none."""
        return _command(cmd_name) if cmd_name in self.list_commands(ctx) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the short forms apart."""
        for title, names in (
            ("Nouns", _NOUNS),
            ("Short forms of 'virtman vm ...'", _SHORT),
            ("Short form of 'virtman layer create'", ("commit",)),
        ):
            with formatter.section(title):
                formatter.write_dl(
                    [(name, _command(name).get_short_help_str(99)) for name in names]
                )


@click.group(cls=_Nouns, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--socket",
    metavar="PATH",
    default=_SOCKET,
    show_default=True,
    envvar="VIRTMAN_SOCKET",
    show_envvar=True,
    help="Unix socket of the agent.",
)
@version_option("virtman")
@click.pass_context
def shell(context: click.Context, socket: str) -> None:
    """Manage this node's VMs and images, and the sources and boot profiles of images.

    A command is a noun and a verb: virtman vm list. Try virtman NOUN --help.
    """
    context.obj = Client(socket)


def main() -> NoReturn:
    """Run a command; an error is one line on standard error and exit status 1."""
    try:
        shell(prog_name="virtman", standalone_mode=False)
    except VirtmanError as err:
        click.echo(f"virtman: {err} [{err.code}]", err=True)
        sys.exit(1)
    except click.ClickException as err:
        err.show()
        sys.exit(err.exit_code)
    except click.Abort:
        sys.exit(130)
    sys.exit(0)


if __name__ == "__main__":
    main()
