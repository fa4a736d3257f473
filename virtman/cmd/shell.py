"""The ``virtman`` command: which nouns it has, and how it ends."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from virtman.api.client import Client
from virtman.cmd.cache import cache
from virtman.cmd.checkpoint import checkpoint
from virtman.cmd.image import image
from virtman.cmd.layer import layer
from virtman.cmd.move import move
from virtman.cmd.node import node
from virtman.cmd.options import version_option
from virtman.cmd.profile import profile
from virtman.cmd.snapshot import snapshot
from virtman.cmd.source import source
from virtman.cmd.vm import vm
from virtman.errors import VirtmanError

_SOCKET = "/run/virtman/agent.sock"
_SHORT = ("create", "destroy", "list", "clone", "migrate", "suspend-image", "resume")


class _Nouns(click.Group):
    """Nouns, and short forms of some of their commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the short forms apart."""
        nouns = [name for name in self.list_commands(ctx) if name not in (*_SHORT, "commit")]
        for title, names in (
            ("Nouns", nouns),
            ("Short forms of 'virtman vm ...'", _SHORT),
            ("Short form of 'virtman layer create'", ("commit",)),
        ):
            with formatter.section(title):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(99)) for name in names]
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


for _noun in (cache, checkpoint, image, layer, move, node, profile, snapshot, source, vm):
    shell.add_command(_noun)
for _verb in _SHORT:
    shell.add_command(vm.commands[_verb])
shell.add_command(layer.commands["create"], "commit")


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
