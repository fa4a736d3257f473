"""The ``virtman`` command: which nouns it has, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
_OF_VMS = ("create", "destroy", "list", "clone", "migrate", "suspend-image", "resume")
# What there is, as --help has it: each name, and the noun, or noun and verb, that it stands for.
_SECTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Nouns": {noun: (noun,) for noun in _NOUNS},
    "Short forms of 'virtman vm ...'": {verb: ("vm", verb) for verb in _OF_VMS},
    "Short form of 'virtman layer create'": {"commit": ("layer", "create")},
}
_NAMES = {name: path for section in _SECTIONS.values() for name, path in section.items()}


def _command(noun: str, *verb: str) -> click.Command:
    found: click.Group = getattr(import_module(f"virtman.cmd.{noun}"), noun)
    return found.commands[verb[0]] if verb else found


class _Nouns(click.Group):
    """Nouns, each with a module of its own, and short forms of some of their commands.

    Only what a command needs is loaded: a VM that is created or resumed waits for it.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names."""
        return sorted(_NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return what a name stands for; None if it is none."""
        return _command(*_NAMES[cmd_name]) if cmd_name in _NAMES else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the short forms apart."""
        for title, names in _SECTIONS.items():
            helps = [(one, _command(*path).get_short_help_str(99)) for one, path in names.items()]
            with formatter.section(title):
                formatter.write_dl(helps)


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
