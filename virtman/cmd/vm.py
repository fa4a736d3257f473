"""The noun ``vm``: VMs' devices on this node."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial

import click

from virtman.api.answers import VmAnswer
from virtman.api.client import Client
from virtman.cmd import buffering, complete, table
from virtman.cmd.at_once import at_once
from virtman.cmd.layer import follow as follow_layer
from virtman.cmd.move import follow
from virtman.cmd.options import as_json, size
from virtman.errors import InstanceExists
from virtman.model import suspended
from virtman.model.dirty import CHUNK
from virtman.model.profile import BOOT

_EMPTY = 2 * CHUNK
"""Bytes of a store that holds nothing: its header, and an empty table."""

_ACCOUNT = "virtman-guest"

_AT_ONCE = 4
"""VMs that are started at once: beyond that each only waits for the others."""


@click.group()
def vm() -> None:
    """VMs: the devices that this node gives to virtual machines."""


@vm.command()
@click.argument(
    "names", metavar="[IMAGE] VM", nargs=-1, required=True, shell_complete=complete.new_vm
)
@click.option(
    "--from-snapshot",
    "snapshot",
    metavar="SNAPSHOT",
    default="",
    shell_complete=complete.snapshots,
    help="Start from the data of this snapshot.",
)
@click.option(
    "--from-vm",
    "original",
    metavar="VM",
    default="",
    shell_complete=complete.vms,
    help="Start from the data of this VM as of now, while it keeps running.",
)
@click.option(
    "--size",
    "length",
    type=size,
    metavar="SIZE",
    help="Size of the VM's disk, such as 20G, with zeros behind the image. Default: the image's.",
)
@click.option(
    "--quota",
    type=size,
    metavar="SIZE",
    help="Limit for what the VM writes, such as 10G; 0 for no limit. Default: [store] quota.",
)
@click.option(
    "--store",
    metavar="DEVICE",
    default="",
    help="Write to this block device, such as a connected Cinder volume, instead of to this "
    "node's disk.",
)
@click.option(
    "--temporary",
    is_flag=True,
    help="Destroy VM by itself once nobody has had its device open for a minute.",
)
@as_json
@click.pass_obj
def create(
    client: Client,
    names: tuple[str, ...],
    snapshot: str,
    original: str,
    length: int | None,
    quota: int | None,
    store: str,
    temporary: bool,
    as_json: bool,
) -> None:
    """Create a private device for VM, and print its path.

    VM begins with the data of IMAGE, of a snapshot, or of another VM.
    """
    image, name = names if len(names) == 2 else ("", names[0])
    if len(names) > 2:
        raise click.UsageError(f"Got unexpected extra argument ({names[2]})")
    if not image and not snapshot and not original:
        raise click.UsageError("Missing argument 'VM', or option '--from-snapshot' or '--from-vm'.")
    made = client.create(
        name, image, snapshot=snapshot, original=original, size=length, quota=quota, store=store,
        temporary=temporary,
    )  # fmt: skip
    click.echo(json.dumps(made) if as_json else made["device"])


@vm.command()
@click.argument("vms", metavar="VM...", nargs=-1, required=True, shell_complete=complete.vms)
@click.option(
    "--drop-image", is_flag=True, help="Also detach, at once, images that no VM uses any more."
)
@click.pass_obj
def destroy(client: Client, vms: tuple[str, ...], drop_image: bool) -> None:
    """Delete VMs' devices and all that was written to them. Images and snapshots stay."""
    images = {client.show(name)["image"] for name in vms} if drop_image else set()
    for name in vms:
        client.destroy(name)
    for one in client.images():
        if one["image"] in images and not one["instances"]:
            client.drop(one["image"])


@vm.command("list")
@as_json
@click.pass_obj
def list_vms(client: Client, as_json: bool) -> None:
    """List the VMs of this node."""
    found = client.list()
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [
        (one["vm"], one["image"], one["state"], table.size(one["taken"]),
         table.quota(one["quota"]), one["device"])
        for one in found
    ]  # fmt: skip
    table.table(("VM", "IMAGE", "STATE", "TAKEN", "QUOTA", "DEVICE"), rows)


@vm.command()
@click.argument("vm", shell_complete=complete.vms)
@as_json
@click.pass_obj
def show(client: Client, vm: str, as_json: bool) -> None:
    """Show one VM: its device, exception stores and snapshots."""
    found = client.show(vm)
    if as_json:
        click.echo(json.dumps(found))
        return
    table.fields(found, ("vm", "image", "device", "size", "state"))
    taken = "-" if found["taken"] is None else found["taken"]
    click.echo(f"taken: {taken} of {found['quota'] or '-'}")
    table.stores(found)
    click.echo(f"snapshots: {', '.join(found['snapshots']) or '-'}")
    if found["temporary"]:
        click.echo("temporary: it goes once nobody has had its device open for a minute")


@vm.command()
@click.argument("vm", shell_complete=complete.vms)
@click.argument("quota", type=size)
@click.pass_obj
def limit(client: Client, vm: str, quota: int) -> None:
    """Limit what VM writes to QUOTA, such as 10G; 0 for no limit."""
    client.limit(vm, quota)


@vm.command()
@click.argument("vm", shell_complete=complete.vms)
@click.argument("size", type=size)
@click.pass_obj
def resize(client: Client, vm: str, size: int) -> None:
    """Make the disk of VM longer, such as 20G, while it runs. It never becomes shorter."""
    client.resize(vm, size)


_connect = click.option(
    "--connect",
    metavar="URI",
    default="qemu:///system",
    show_default=True,
    help="Where libvirt is.",
)


@vm.command("suspend-image")
@click.argument("vm", shell_complete=complete.vms)
@click.argument("name", metavar="NAME")
@click.option(
    "--qmp",
    metavar="SOCKET",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="Unix socket at which the QEMU of VM listens, for nobody else. The agent's account must "
    "be able to use it.",
)
@click.option("--domain", metavar="DOMAIN", help="Name or UUID of VM at libvirt, instead of --qmp.")
@_connect
@click.option(
    "--force",
    is_flag=True,
    help="Also if VM has network cards, or somebody is logged in. VMs that are resumed have both, "
    "without a network.",
)
@click.option(
    "--saved",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="The memory is in FILE, which QEMU wrote elsewhere with 'mapped-ram'. The QEMU at SOCKET "
    "tells the hardware, and has never run.",
)
@click.option(
    "--project",
    metavar="PROJECT",
    default="",
    help="VMs of PROJECT alone may have the memory; default: that of VM or its image, if it was "
    "resumed.",
)
@as_json
@click.pass_obj
def suspend(
    client: Client,
    vm: str,
    name: str,
    qmp: str | None,
    domain: str | None,
    connect: str,
    force: bool,
    saved: str | None,
    project: str,
    as_json: bool,
) -> None:
    """Make NAME of disk and memory of VM, for others to go on from.

    VM runs in a QEMU whose monitor listens at SOCKET, or as DOMAIN of libvirt; run this as root
    then. It goes on after a moment.
    """
    if (qmp is None) == (domain is None):
        raise click.UsageError("give either --qmp or --domain")
    if domain and saved:
        raise click.UsageError("--saved is about the QEMU at --qmp")
    with ExitStack() as asked:
        if domain:
            from virtman.qemu import relay  # noqa: PLC0415 - loads what others need not

            owner = os.stat(client.path).st_uid
            qmp, own = asked.enter_context(relay.monitor(domain, connect, owner))
            project = project or own
        assert qmp is not None
        client.suspend(vm, name, qmp, forced=force, saved=saved or "", project=project)
        follow_layer(client, name, as_json=as_json)


@vm.command()
@click.argument("name", metavar="NAME", shell_complete=complete.layers)
@click.argument("vm")
@click.option(
    "--count",
    type=click.IntRange(1, 1000),
    help="So many VMs, called VM-1, VM-2 and so on.",
)
@click.option(
    "--account",
    help=f"Account that QEMU runs as; default: {_ACCOUNT}.",
)
@click.option(
    "--libvirt",
    is_flag=True,
    help="Have libvirt run VM, as a domain called VM.",
)
@_connect
@click.option(
    "--tap",
    default="",
    help="TAP interface, to which VM gets a network card of its own once it runs; with --count "
    "TAP-1, TAP-2 and so on.",
)
@click.option(
    "--buffer",
    is_flag=True,
    help="Let VM stand still until so much of what it will read is there that it does not wait "
    "later.",
)
@click.option(
    "--workload",
    metavar="NAME",
    default=BOOT,
    show_default=True,
    help="Workload whose profile says what VM will read, with --buffer.",
)
@click.option(
    "--project",
    metavar="PROJECT",
    default="",
    help="Of which VM is: memory that belongs to a project is for its own VMs only.",
)
@as_json
@click.pass_obj
def resume(
    client: Client,
    name: str,
    vm: str,
    count: int | None,
    account: str | None,
    libvirt: bool,
    connect: str,
    tap: str,
    buffer: bool,
    workload: str,
    project: str,
    as_json: bool,
) -> None:
    """Start VM where the suspended image NAME was, without a boot.

    Run as root. It runs until QEMU is told to end, at /run/virtman-guests/VM/qmp, or libvirt is.
    With --count, VMs that run already are left alone.
    """
    # needs more than others, and takes long to load
    from virtman.qemu import guests, resuming, sandbox  # noqa: PLC0415

    if libvirt and account:
        raise click.UsageError("with --libvirt, QEMU's account is libvirt's: leave --account out")
    starter = resuming.starter(account or _ACCOUNT, connect if libvirt else "")
    record, device = client.suspended(name)
    suspended.check_same(name, record, suspended.check_project(project))
    ends = [""] if count is None else [f"-{number}" for number in range(1, count + 1)]
    for end in ends if tap else ():
        resuming.check_tap(f"{tap}{end}")
    sandbox.have_no_huge_pages()
    resuming.check_host(record, starter.account)
    image = guests.Image(record, device, client.path)

    def start(end: str) -> str:
        one = f"{vm}{end}"
        told: dict[str, object] = {"vm": one}
        told |= {"domain": one} if libvirt else {"qmp": str(guests.monitor_of(one))}
        made = _made(client, one, name)
        if made is None and count is None:
            raise InstanceExists(f"VM {one} runs already: choose another name")
        if made is None:
            return json.dumps(told) if as_json else f"{one}: runs already"
        waits = partial(buffering.wait, client, name, workload, one, as_json=as_json)
        try:
            found = resuming.resume(
                one,
                made["device"],
                image,
                starter,
                tap and f"{tap}{end}",
                waits if buffer else None,
                project,
            )
        except BaseException:
            client.destroy(one)
            raise
        told |= asdict(found)
        still = f", of which it stood still for {found.buffered_s:.1f} s" if buffer else ""
        card = f", with the card {found.mac}" if found.mac else ""
        return (
            json.dumps(told) if as_json else f"{one}: runs after {found.seconds:.1f} s{still}{card}"
        )

    # who waits for a buffer says so as it goes on
    for line in map(start, ends) if buffer else at_once(start, ends, _AT_ONCE):
        click.echo(line)


def _made(client: Client, vm: str, image: str) -> VmAnswer | None:
    """Create a VM that is to be resumed, or take one up whose start was killed before it ran.

    :returns: None if it runs
    """
    from virtman.qemu import resuming  # noqa: PLC0415 - see above

    try:
        return client.create(vm, image)
    except InstanceExists:
        found = client.show(vm)
        if found["image"] == image and resuming.runs(vm):
            return None
        is_new = found["taken"] is not None and found["taken"] <= _EMPTY and not found["snapshots"]
        if found["image"] != image or not is_new:
            raise
        resuming.end(vm)
        return found


_to = click.option("--to", "host", metavar="HOST", required=True, help="Destination host.")


@vm.command()
@click.argument("vm", shell_complete=complete.vms)
@_to
@click.option("--as", "name", metavar="NAME", default="", help="Name of the copy; default: VM.")
@as_json
@click.pass_obj
def clone(client: Client, vm: str, host: str, name: str, as_json: bool) -> None:
    """Copy VM, with its data as of now, to another host. VM keeps running here."""
    client.clone(vm, host, name)
    follow(client, vm, as_json=as_json)


@vm.command()
@click.argument("vm", shell_complete=complete.vms)
@_to
@click.option("--live", is_flag=True, help="Hand VM over only at 'virtman move finish'.")
@as_json
@click.pass_obj
def migrate(client: Client, vm: str, host: str, live: bool, as_json: bool) -> None:
    """Move VM to another host. Its device works here until all data is there."""
    client.migrate(vm, host, live=live)
    follow(client, vm, ready=live, as_json=as_json)
