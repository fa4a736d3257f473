"""The noun ``checkpoint``: layers that are made of a VM again and again."""

from __future__ import annotations

import json

import click

from virtman.api.client import Client
from virtman.cmd import complete, layer, table
from virtman.cmd.options import as_json, duration


class _Checkpoints(click.Group):
    """Verbs, and a VM for one that is to be made."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take what is no verb for what ``make`` is told."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["make", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Checkpoints)
def checkpoint() -> None:
    """Checkpoints: layers made of a VM again and again, each of what changed since the last.

    'virtman checkpoint VM' is short for 'virtman checkpoint make VM', and
    'virtman checkpoint -- VM' is so for a VM that is called as a verb.
    """


@checkpoint.command()
@click.argument("vm", shell_complete=complete.vms)
@click.option(
    "--every",
    metavar="TIME",
    type=duration,
    help="Make one again and again, after so many seconds, or 10m, 2h, 1d; 0 ends that.",
)
@click.option(
    "--keep", type=click.IntRange(1), help="Checkpoints that stay, the latest ones; default: 3."
)
@as_json
@click.pass_obj
def make(client: Client, vm: str, every: int | None, keep: int | None, as_json: bool) -> None:
    """Make a checkpoint of what VM has written up to now. VM keeps running."""
    made = client.checkpoint(vm, every=every, keep=keep)
    layer.follow(client, made["layer"], as_json=as_json)


@checkpoint.command("list")
@as_json
@click.pass_obj
def list_checkpoints(client: Client, as_json: bool) -> None:
    """List the VMs of which checkpoints are made."""
    found = client.checkpoints()
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [
        (one["vm"], f"{one['every']} s" if one["every"] else "", str(one["keep"]),
         " ".join(one["layers"]), one["created_at"] or "", one["note"])
        for one in found
    ]  # fmt: skip
    table.table(("VM", "EVERY", "KEEP", "CHECKPOINTS", "LATEST", "NOTE"), rows)


@checkpoint.command()
@click.argument("vm", shell_complete=complete.checkpointed)
@click.pass_obj
def stop(client: Client, vm: str) -> None:
    """Make no more checkpoints of VM; those that there are stay, as layers."""
    client.stop_checkpoints(vm)
