"""The lab on the command line: python -m lab up, exec, status, log, list, down."""

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

from lab.cluster import Bed
from lab.errors import LabError
from lab.network import ADDRESS
from lab.node import Node
from lab.openstack.command import end, openstack
from lab.rootfs import TOP
from lab.state import recorded_beds

NAME = click.option("--name", default="demo", show_default=True, help="Which bed.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


class Commands(click.Group):
    """Shows what went wrong on the bed as a message, not as a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except LabError as err:
            raise click.ClickException(str(err)) from err


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Whole hosts with kernels of their own, in a network of their own, on this machine."""
    handler = RichHandler(console=Console(stderr=True), show_path=False)
    logging.basicConfig(level="INFO", format="%(message)s", handlers=[handler])


@main.command()
@click.option("--nodes", default=1, show_default=True, help="How many: node1, node2 and on.")
@click.option("--link-rate", help="Shape each node's link both ways, for example 100mbit.")
@click.option("--memory", default="448M", show_default=True, help="Memory of a node.")
@click.option("--cache", default="4G", show_default=True, help="Size of a node's cache disk.")
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    default=TOP,
    help="The source tree that the nodes run; this one by default.",
)
@NAME
@JSON
def up(
    *, nodes: int, link_rate: str, memory: str, cache: str, source: Path, name: str, as_json: bool
) -> None:
    """Start a bed and leave it running."""
    bed = Bed(name, link_rate, source)
    bed.up()
    try:
        bed.start_nodes([f"node{number}" for number in range(1, nodes + 1)], memory, cache)
    except BaseException:
        bed.down()
        raise
    show(status_of(bed), as_json)


@main.command("exec", context_settings={"ignore_unknown_options": True})
@NAME
@click.option("--timeout", default=600.0, show_default=True, help="Seconds until it is ended.")
@click.option("-i", "--stdin", is_flag=True, help="Pass standard input on, up to its end.")
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(name: str, timeout: float, stdin: bool, node: str, command: Sequence[str]) -> None:
    """Run COMMAND in NODE; end with its status."""
    data = sys.stdin.buffer.read() if stdin else None
    result = Bed.attach(name).node(node).run(command, timeout=timeout, check=False, input=data)
    sys.stdout.buffer.write(result.stdout_bytes)
    sys.stderr.buffer.write(result.stderr_bytes)
    sys.exit(result.status if result.status >= 0 else 128 - result.status)


@main.command()
@NAME
@JSON
def status(name: str, as_json: bool) -> None:
    """Show a bed's nodes."""
    show(status_of(Bed.attach(name)), as_json)


@main.command()
@NAME
@click.argument("node")
def log(name: str, node: str) -> None:
    """Print what NODE's console has shown."""
    click.echo(Bed.attach(name).node(node).kernel_log(), nl=False)


@main.command("list")
@JSON
def list_(as_json: bool) -> None:
    """List the beds that are up, or were never brought down."""
    names = recorded_beds()
    click.echo(json.dumps(names) if as_json else "\n".join(names), nl=bool(names) or as_json)


@main.command()
@NAME
def down(name: str) -> None:
    """End a bed and remove all of it, even when the lab that started it was killed."""
    end(name)


def status_of(bed: Bed) -> dict[str, Any]:
    """Return a bed and its nodes as JSON shows them."""
    nodes = {name: node_status(node) for name, node in bed.nodes.items()}
    return {"name": bed.name, "address": ADDRESS, "nodes": nodes}


def node_status(node: Node) -> dict[str, Any]:
    """Return a node as JSON shows it; byte counts are since its link was made."""
    return {
        "address": node.address,
        "alive": node.alive(),
        "memory": node.record().memory,
        "share": str(node.share),
        "sent_bytes": node.sent_bytes(),
        "received_bytes": node.received_bytes(),
        "kernel_faults": node.kernel_faults(),
    }


def show(status: dict[str, Any], as_json: bool) -> None:
    """Print a bed's status."""
    if as_json:
        click.echo(json.dumps(status, indent=2))
        return
    table = Table("node", "address", "alive", "memory", "sent", "received", "kernel faults")
    for name, node in status["nodes"].items():
        table.add_row(
            *(name, node["address"], "yes" if node["alive"] else "[red]no", node["memory"]),
            *(f"{node['sent_bytes']:,}", f"{node['received_bytes']:,}"),
            str(len(node["kernel_faults"])),
        )
    Console().print(table)


main.add_command(openstack)

if __name__ == "__main__":
    main(prog_name="python -m lab")
