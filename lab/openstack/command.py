"""The cloud on the command line: python -m lab openstack up, status, client, tempest, down."""

import itertools
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from lab.cluster import Bed
from lab.openstack.bed import OpenStack
from lab.openstack.settings import PASSWORD, SNAPSHOT, Nova
from lab.openstack.tempest import Known, Tempest
from lab.ports import free_port

NOVA = click.Choice(Nova, case_sensitive=False)
NAME = click.option("--name", default="openstack", show_default=True, help="Which bed.")


def end(name: str) -> None:
    """End a bed and remove all of it; say what is left, and exit with 1 if anything is."""
    left = Bed(name).down()
    for line in left:
        click.echo(line, err=True)
    sys.exit(1 if left else 0)


@click.group()
def openstack() -> None:
    """A real OpenStack on a bed: control plane, storage and compute nodes, and VirtMan."""


@openstack.command()
@click.option("--port", type=int, help="Of 127.0.0.1, for Horizon; a free one by default.")
@click.option(
    "--nova", type=NOVA, default=Nova.PATCHED, show_default="patched", help="Which Nova it runs."
)
@NAME
def up(port: int | None, nova: Nova, name: str) -> None:
    """Start it and leave it running; say how to use it."""
    began = time.monotonic()

    def say(step: str) -> None:
        click.echo(f"{time.monotonic() - began:5.0f} s  {step}", err=True)

    cloud = OpenStack(name)
    cloud.up(say, nova)
    say("up")
    click.echo(usage(cloud, port))


@openstack.command()
@click.argument("which", type=NOVA)
@NAME
def nova(which: Nova, name: str) -> None:
    """Run another Nova on a bed that is up."""
    Bed.attach(name)
    OpenStack(name).switch(which)


def usage(cloud: OpenStack, port: int | None = None) -> str:
    """Forward a port to Horizon, and say how everything is used."""
    name = cloud.bed.name
    url = cloud.dashboard.forward(port or free_port())
    me = f"python -m lab openstack %s --name {name}"
    server = f"server create --snapshot {SNAPSHOT} --count 4 --flavor guest --network none web"
    return (
        f"Horizon:   {url} (user admin or demo, password {PASSWORD})\n"
        f"Servers:   {me % 'client'} -- virtman {server}\n"
        f"           {me % 'client'} -- server list --long\n"
        f"A node:    python -m lab exec --name {name} compute1 virsh list\n"
        f"Logs:      {cloud.settings.logs} and {cloud.bed.folder}/*/share\n"
        f"Health:    {me % 'status'}\n"
        f"The end:   {me % 'down'}"
    )


@openstack.command()
@NAME
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def status(name: str, as_json: bool) -> None:
    """Show whether each service is well; the status is 1 if one is not."""
    Bed.attach(name)
    found = OpenStack(name).status()
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        table = Table("where", "service", "state")
        for where, group in itertools.groupby(found, lambda one: one["where"]):
            for one in group:
                colour = "green" if one["state"] == "up" else "red"
                table.add_row(where, one["service"], f"[{colour}]{one['state']}")
            table.add_section()
        Console().print(table)
    sys.exit(0 if all(one["state"] == "up" for one in found) else 1)


@openstack.command(context_settings={"ignore_unknown_options": True})
@NAME
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED)
def client(name: str, words: Sequence[str]) -> None:
    """Run openstackclient with WORDS, as admin in the project demo."""
    Bed.attach(name)
    done = OpenStack(name).run_client(*words)
    sys.stdout.buffer.write(done.stdout_bytes)
    sys.stderr.buffer.write(done.stderr_bytes)
    sys.exit(done.status)


@openstack.command()
@NAME
@click.option("--nova", "novas", type=NOVA, multiple=True, help="Run this Nova; may be repeated.")
@click.option(
    "--json", "file", type=click.Path(dir_okay=False, path_type=Path),
    help="Keep in this file what became of each test; go on behind those that it has.",
)  # fmt: skip
@click.argument("regex", default="")
def tempest(name: str, novas: Sequence[Nova], file: Path | None, regex: str) -> None:
    """Run tempest's tests that need no network, or those that match REGEX instead.

    The status is 1 if one failed; with several Novas, if one passed with the first of them and
    not with the last.
    """
    Bed.attach(name)
    cloud = OpenStack(name)
    runner = Tempest(cloud)
    known = Known(file)
    runs = []
    for one in novas or [cloud.settings.nova]:
        if one is not cloud.settings.nova:
            cloud.switch(one)
        runs.append(runner.run(regex, known))
        click.echo(f"{one}: {runs[-1]}; see {runner.folder}")
        for test in runs[-1].failed:
            click.echo(f"  failed: {test}")
    worse = runs[-1].failed if len(runs) == 1 else runs[-1].lost(runs[0])
    if len(runs) > 1:
        for test in worse:
            click.echo(f"passed with {novas[0]}, not with {novas[-1]}: {test}")
    sys.exit(1 if worse else 0)


@openstack.command()
@NAME
def down(name: str) -> None:
    """End it and remove all of it, even when the lab that started it was killed."""
    end(name)
