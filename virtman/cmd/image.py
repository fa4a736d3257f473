"""The noun ``image``: images on this node."""

from __future__ import annotations

import json

import click

from virtman.api.answers import AheadAnswer, CopyAnswer, ImageAnswer, WantAnswer
from virtman.api.client import Client
from virtman.cmd import complete, table
from virtman.cmd.options import as_json, size
from virtman.model.profile import BOOT


@click.group()
def image() -> None:
    """Images that are attached on this node."""


@image.command("list")
@as_json
@click.pass_obj
def list_images(client: Client, as_json: bool) -> None:
    """List attached images, with the parents and VMs of each."""
    found = client.images()
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [
        (
            one["image"],
            table.size(one["size"]),
            _state(one),
            ",".join(one["parents"]),
            ",".join(one["instances"]),
        )
        for one in found
    ]
    table.table(("IMAGE", "SIZE", "STATE", "PARENTS", "VMS"), rows)


def _state(found: ImageAnswer) -> str:
    if found["local"]:
        return "whole"
    if found["waiting"] >= 1:
        return f"waits for {','.join(found['parents'])}: {found['waiting']:.0f} s"
    state = "warm" if found["warm"] else "cold"
    if found["lenders"]:
        state += f", shares {','.join(found['lenders'])}"
    return f"{state}, {_copied(found['copy'])}" if found["copy"] else state


def _copied(copy: CopyAnswer) -> str:
    if copy["state"] == "checking":
        return f"checking {_percent(copy['checked'], copy['wanted'])}"
    return f"{copy['state']} {_percent(copy['there'], copy['wanted'])}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part // whole} %"


@image.command()
@click.argument("name", metavar="IMAGE", shell_complete=complete.images)
@as_json
@click.pass_obj
def show(client: Client, name: str, as_json: bool) -> None:
    """Show IMAGE, if it is attached, and how far its copy is."""
    found = client.image(name)
    if as_json:
        click.echo(json.dumps(found))
        return
    table.fields(found, ("image", "size"))
    click.echo(f"state: {_state(found)}")
    for title, names in (("parents", found["parents"]), ("VMs", found["instances"])):
        click.echo(f"{title}: {', '.join(names) or 'none'}")
    if (based := found["based"]) is not None:
        lenders = ", ".join(found["lenders"]) or "none"
        shared = table.rounded(based["shared"])
        click.echo(f"based on: {', '.join(based['images'])} ({shared}), read from: {lenders}")
    if (copy := found["copy"]) is not None:
        rate = f"{copy['rate']} bytes/s" if copy["rate"] else "no limit"
        held = "; it holds back, as VMs wait for reads" if copy["held_back"] else ""
        click.echo(f"copy: {copy['there']} of {copy['wanted']} bytes, {rate}{held}")
        if copy["verdict"]:
            click.echo(f"trouble: {copy['verdict']}")


@image.command()
@click.argument("name", metavar="IMAGE", shell_complete=complete.images)
@click.option(
    "--rate",
    metavar="SIZE",
    type=size,
    help="Bytes a second at which IMAGE may be fetched, such as 20M; default: no limit but those "
    "for all that is fetched ahead of VMs.",
)
@click.option("--wait", is_flag=True, help="Wait until IMAGE needs no parents.")
@as_json
@click.pass_obj
def hydrate(client: Client, name: str, rate: int | None, wait: bool, as_json: bool) -> None:
    """Copy all of IMAGE to this node, so that it needs no parents.

    That goes on in the background. Once all is here and was found right, VMs read IMAGE from the
    copy, and so do the children of this node. IMAGE stays attached until the copy is given back
    with 'virtman image release'. If it is being copied already, it goes on at this rate.
    """
    copy = client.hydrate(name, rate)
    if wait:
        with table.status_line(as_json=as_json) as show_line:
            copy = client.await_copy(name, lambda now: show_line(_copied(now)))
    if as_json:
        click.echo(json.dumps(copy))
    else:
        click.echo(f"{name}: {_copied(copy)}")
    if wait and copy["state"] == "stopped":
        raise click.ClickException(f"{name} is not whole: {copy['verdict']}")


@image.command()
@click.argument("name", metavar="IMAGE", shell_complete=complete.images)
@click.pass_obj
def release(client: Client, name: str) -> None:
    """Give the copy of IMAGE on this node back, and its space.

    It need not be whole. First IMAGE is read from its parents again. If none of these answers, the
    copy stays.
    """
    client.release(name)


@image.command()
@click.argument("name", metavar="IMAGE", shell_complete=complete.images)
@click.pass_obj
def drop(client: Client, name: str) -> None:
    """Detach IMAGE now instead of after its keep time. Its children are moved first."""
    client.drop(name)


@image.command()
@click.argument("name", metavar="IMAGE")
@as_json
@click.pass_obj
def want(client: Client, name: str, as_json: bool) -> None:
    """Have IMAGE made if Volt does not know it yet, and wait for it.

    An importer, such as virtman-images, has to know how. IMAGE is wanted no more a minute after
    this command ended.
    """
    with table.status_line(as_json=as_json) as show:
        found = client.await_image(name, lambda now: show(_step(now)))
    if as_json:
        click.echo(json.dumps(found))
    else:
        click.echo(f"{name}: {table.rounded(found['size'] or 0)}, known to Volt")


def _step(found: WantAnswer) -> str:
    if found["state"] == "wanted":
        return "nobody makes it yet"
    done, total = (table.rounded(found[key]) for key in ("done", "total"))
    return f"{found['importer']}: {found['detail']}, {done} of {total}"


@image.command()
@click.argument("name", metavar="IMAGE", shell_complete=complete.images)
@click.option(
    "--workload",
    metavar="NAME",
    default=BOOT,
    show_default=True,
    help="Workload whose profile says what is fetched.",
)
@as_json
@click.pass_obj
def warm(client: Client, name: str, workload: str, as_json: bool) -> None:
    """Attach IMAGE, and fetch what VMs will read of it when they boot.

    Its boot profile says what that is. Without VMs, IMAGE stays for its keep time.
    """
    with table.status_line(as_json=as_json) as show:
        ended = client.warm(name, lambda now: show(_share(now)), workload=workload)
    if as_json:
        click.echo(json.dumps(ended))
    else:
        click.echo(f"{name}: {_share(ended)} here, {table.rounded(ended['fetched'])} were fetched")
    if ended["state"] == "stopped":
        raise click.ClickException(f"{name} is not warm: {ended['verdict']}")


def _share(ahead: AheadAnswer) -> str:
    return f"{table.rounded(ahead['there'])} of {table.rounded(ahead['wanted'])}"


@image.command()
@click.argument("name", metavar="IMAGE", shell_complete=complete.images)
@as_json
@click.pass_obj
def scrub(client: Client, name: str, as_json: bool) -> None:
    """Check the cached blocks of IMAGE, and drop wrong ones.

    All of IMAGE is read and compared with its hash tree. Blocks that are not cached are fetched.
    """
    found = client.scrub(name)
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(f"{found['checked']} bytes checked, {len(found['dropped'])} blocks dropped")
