"""The noun ``vm``: VMs' devices on this node."""

from __future__ import annotations

import json

import click

from virtman.api.client import Client
from virtman.cmd import complete, table
from virtman.cmd.move import follow
from virtman.cmd.options import as_json, size


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
    """Show one VM: its device, its exception stores and its snapshots."""
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
