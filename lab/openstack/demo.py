"""The main job in a real OpenStack: servers of one snapshot, in one request.

Starts the bed, asks for the servers as a user does, waits until each guest has found its disk
right, shows what Cinder holds, and takes all down again.
"""

import signal
import sys
import time
from collections.abc import Callable

import click

from lab.errors import LabError
from lab.openstack.bed import OpenStack
from lab.openstack.command import usage
from lab.openstack.servers import Servers
from lab.report import Progress


def run(servers: Servers, count: int, say: Callable[[str], None]) -> bool:
    """Boot servers; return whether every guest found its disk right and Cinder made one volume."""
    began = time.monotonic()
    made = servers.boot("web", count)
    for one in servers.wait(made, "ACTIVE"):
        say(f"{one.name} is ACTIVE on {one.host}")
    say(f"all are ACTIVE after {time.monotonic() - began:.0f} s; their guests look at their disks")
    reports = [servers.report(server) for server in made]
    say(f"all guests have spoken after {time.monotonic() - began:.0f} s")
    for server, report in zip(made, reports, strict=True):
        verdict = "found its disk right" if report.ok else f"FAILED: {report.fields}"
        say(f"{servers.show(server).name} {verdict}")
    volumes = servers.volumes()
    say(f"Cinder made {len(volumes)} volume: {', '.join(one.name for one in volumes)}")
    return all(report.ok for report in reports) and len(volumes) == 1


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--vms", default=4, show_default=True, type=click.IntRange(1, 8))
@click.option("--keep", is_flag=True, help="Leave the cloud up and say how to look around.")
@click.option("--name", default="openstack", show_default=True, help="Of the bed.")
def main(vms: int, keep: bool, name: str) -> None:
    """Boot VMS servers of one snapshot in a real OpenStack, through VirtMan."""
    say = Progress().say
    # ended from outside, it takes the bed down just as when interrupted
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cloud = OpenStack(name)
        cloud.up(say)
        kept = False
        try:
            servers = Servers(cloud)
            right = run(servers, vms, say)
            if keep:
                kept = True
                say(usage(cloud))
            else:
                servers.delete(*(one.id for one in servers.all()))
                servers.wait_nothing_left()
                say("the servers are deleted, and nothing is left of them")
        finally:
            if not kept:
                left = cloud.bed.down()
                say("; ".join(left) or "the bed is down, and nothing is left of it")
    except LabError as err:
        raise click.ClickException(str(err)) from err
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
