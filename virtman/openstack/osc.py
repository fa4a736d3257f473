"""``openstack virtman ...``: the plug-in of python-openstackclient.

Images and hosts come from Volt, whom Keystone's catalog knows as service type ``virtman``;
servers are asked of Nova, by the same request as by any other way.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from keystoneauth1.adapter import Adapter
from osc_lib import utils
from osc_lib.command import command
from osc_lib.exceptions import CommandError

API_NAME = "virtman"
API_VERSION_OPTION = "os_virtman_api_version"
DEFAULT_API_VERSION = "1"
API_VERSIONS = ("1",)

_MICROVERSION = "2.67"  # since when a request can name the volume type of a disk
_PAGE = 1000
_GIB = 1024**3
_IMAGE = "Its name, such as snapshot-<id> or image-<id>-<GiB>"

Columns = tuple[str, ...]
Rows = Iterator[tuple[Any, ...]]


def make_client(instance: Any) -> Adapter:
    """Return what asks Volt as the user who is logged in; called by openstackclient."""
    return Adapter(
        session=instance.session,
        service_type="virtman",
        interface=instance.interface,
        region_name=instance.region_name,
        endpoint_override=instance.get_configuration().get("virtman_endpoint") or None,
    )


def build_option_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the options of all commands; called by openstackclient."""
    parser.add_argument(
        "--os-virtman-api-version",
        metavar="<version>",
        default=utils.env("OS_VIRTMAN_API_VERSION", default=DEFAULT_API_VERSION),
        help="Version of Volt's API (Env: OS_VIRTMAN_API_VERSION)",
    )
    parser.add_argument(
        "--os-virtman-endpoint",
        metavar="<url>",
        default=utils.env("OS_VIRTMAN_ENDPOINT"),
        help="Where Volt answers, if the catalog does not have it (Env: OS_VIRTMAN_ENDPOINT)",
    )
    return parser


def _all(volt: Adapter, noun: str) -> Iterator[Mapping[str, Any]]:
    """Yield the items of a list of Volt, page by page."""
    marker = ""
    while True:
        query = f"?limit={_PAGE}" + (f"&marker={quote(marker, safe='')}" if marker else "")
        page = volt.get(f"/v1/{noun}{query}").json()
        yield from page[noun]
        marker = page["next"]
        if not marker:
            return


class ListImages(command.Lister):  # type: ignore[misc]
    """List the images that VirtMan boots from."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Columns, Rows]:
        """Return columns and rows."""
        found = _all(self.app.client_manager.virtman, "images")
        columns = ("Name", "Size", "Shape", "Hosts", "Created At")
        keys = ("name", "size", "shape", "hosts", "created_at")
        return columns, (tuple(one[key] for key in keys) for one in found)


class ShowImage(command.ShowOne):  # type: ignore[misc]
    """Show one image."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("image", metavar="<image>", help=_IMAGE)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Columns, tuple[Any, ...]]:
        """Return columns and values."""
        volt = self.app.client_manager.virtman
        found = volt.get(f"/v1/images/{quote(parsed_args.image, safe='')}").json()
        return tuple(found), tuple(found.values())


class ShowTree(command.Lister):  # type: ignore[misc]
    """Show which host reads an image from which, the nearest to the source first."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("image", metavar="<image>", help=_IMAGE)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Columns, Rows]:
        """Return columns and rows."""
        volt = self.app.client_manager.virtman
        found = volt.get(f"/v1/images/{quote(parsed_args.image, safe='')}/trees").json()
        columns = ("Stripe", "Depth", "Host", "Parent", "Feeds Others", "State")
        rows = (
            (tree["stripe"], node["depth"], node["host"], node["parent"] or "source",
             node["inner"], node["state"])
            for tree in found["trees"]
            for node in tree["nodes"]
        )  # fmt: skip
        return columns, rows


class ListHosts(command.Lister):  # type: ignore[misc]
    """List the hosts that read images, and what they last said."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Columns, Rows]:
        """Return columns and rows."""
        columns = ("Host", "Rack", "Images", "Draining", "Overloaded", "Silent")
        rows = (
            (one["host"], one["rack"], len(report.get("images", ())), one["draining"],
             report.get("overloaded", False), one["silent"])
            for one in _all(self.app.client_manager.virtman, "hosts")
            for report in (one["report"] or {},)
        )  # fmt: skip
        return columns, rows


class DrainHost(command.Command):  # type: ignore[misc]
    """Let a host feed no others any more, or again."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("host", metavar="<host>", help="Its name at Volt")
        parser.add_argument("--end", action="store_true", help="Let it feed others again")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Tell Volt."""
        volt = self.app.client_manager.virtman
        path = f"/v1/hosts/{quote(parsed_args.host, safe='')}"
        volt.patch(path, json={"draining": not parsed_args.end})


class CreateServers(command.Lister):  # type: ignore[misc]
    """Create servers that all boot from one snapshot or image; Cinder makes one volume of it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="<name>", help="Of the server; several get numbers")
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument("--snapshot", metavar="<snapshot>", help="Name or id, of Cinder's")
        source.add_argument("--image", metavar="<image>", help="Name or id, of Glance's")
        source.add_argument(
            "--volume",
            metavar="<volume>",
            help="Name or id: a snapshot of it is made, and stays until you delete it",
        )
        parser.add_argument(
            "--size",
            metavar="<GiB>",
            type=int,
            help="Of the disks, with --image (default: what the image needs)",
        )
        parser.add_argument(
            "--force",
            action="store_true",
            help="Make the snapshot of --volume even while the volume is attached: "
            "it has what a power cut would leave",
        )
        parser.add_argument("--flavor", metavar="<flavor>", required=True, help="Name or id")
        parser.add_argument("--count", metavar="<n>", type=int, default=1, help="How many servers")
        parser.add_argument(
            "--network",
            metavar="<network>",
            action="append",
            help="Name or id, can be repeated; or auto or none (default: auto)",
        )
        parser.add_argument(
            "--volume-type",
            metavar="<type>",
            default="virtman",
            help="That of [virtman] volume_type in nova.conf (default: virtman)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Columns, Rows]:
        """Return columns and rows, one a server."""
        cloud = self.app.client_manager.sdk_connection
        if parsed_args.size is not None and not parsed_args.image:
            raise CommandError("--size is for --image: a disk is as large as its snapshot")
        if parsed_args.force and not parsed_args.volume:
            raise CommandError("--force is for --volume")
        server = {
            "name": parsed_args.name,
            "flavorRef": cloud.compute.find_flavor(parsed_args.flavor, ignore_missing=False).id,
            "networks": _networks(cloud, parsed_args.network or ["auto"]),
            "min_count": parsed_args.count,
            "max_count": parsed_args.count,
            "return_reservation_id": True,
        }
        with self._source(cloud, parsed_args) as source:
            disk = source | {
                "destination_type": "volume",
                "boot_index": 0,
                "volume_type": parsed_args.volume_type,
                "delete_on_termination": True,
            }
            body = {"server": server | {"block_device_mapping_v2": [disk]}}
            made = _nova(cloud, "POST", "/servers", body)
        path = f"/servers/detail?reservation_id={made['reservation_id']}"
        found = _nova(cloud, "GET", path)["servers"]
        image = _image_of(**source)
        columns = ("ID", "Name", "Status", "Image")
        return columns, ((one["id"], one["name"], one["status"], image) for one in found)

    @contextlib.contextmanager
    def _source(self, cloud: Any, wanted: argparse.Namespace) -> Iterator[dict[str, Any]]:
        """Yield what servers are made of, in Nova's words."""
        if wanted.image:
            found = cloud.image.find_image(wanted.image, ignore_missing=False)
            size = wanted.size or _size_of(found)
            yield {"source_type": "image", "uuid": found.id, "volume_size": size}
        elif wanted.snapshot:
            found = cloud.block_storage.find_snapshot(wanted.snapshot, ignore_missing=False)
            yield {"source_type": "snapshot", "uuid": found.id}
        else:
            with self._snapshot(cloud.block_storage, wanted) as made:
                yield {"source_type": "snapshot", "uuid": made}

    @contextlib.contextmanager
    def _snapshot(self, storage: Any, wanted: argparse.Namespace) -> Iterator[str]:
        """Make a snapshot and yield its id; delete it if it fails, or Nova refuses."""
        from openstack import exceptions  # noqa: PLC0415

        volume = storage.find_volume(wanted.volume, ignore_missing=False)
        if volume.status == "in-use" and not wanted.force:
            raise CommandError(
                f"volume {wanted.volume} is attached: stop what writes to it and detach it, or "
                "have a snapshot that is as after a power cut, with --force"
            )
        force = {"is_forced": True} if wanted.force else {}
        made = storage.create_snapshot(volume_id=volume.id, name=wanted.name, **force)
        print(
            f"Servers boot from snapshot {made.id} of volume {wanted.volume}. It is yours to "
            "delete, once you need no more servers of it.",
            file=self.app.stderr,
        )
        try:
            storage.wait_for_status(made, "available", failures=["error"], interval=1)
            yield made.id
        except (
            exceptions.ResourceFailure,
            exceptions.BadRequestException,
            exceptions.ForbiddenException,
            exceptions.NotFoundException,
            exceptions.ConflictException,
        ):
            # After any other error Nova may be making servers of it.
            storage.delete_snapshot(made.id)
            print(f"Snapshot {made.id} is deleted again.", file=self.app.stderr)
            raise


def _size_of(image: Any) -> int:
    """Return how many GiB a volume of an image must have at least."""
    data = max(image.size or 0, image.virtual_size or 0)
    return max(image.min_disk or 0, -(-data // _GIB), 1)


def _image_of(source_type: str, uuid: str, volume_size: int = 0) -> str:
    """Return what Volt calls what servers are made of."""
    return f"image-{uuid}-{volume_size}" if source_type == "image" else f"snapshot-{uuid}"


def _networks(cloud: Any, names: list[str]) -> Any:
    if names in (["auto"], ["none"]):
        return names[0]
    found = (cloud.network.find_network(name, ignore_missing=False) for name in names)
    return [{"uuid": one.id} for one in found]


def _nova(cloud: Any, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Ask Nova; its refusals become errors with Nova's own words, by the SDK."""
    from openstack import exceptions  # noqa: PLC0415

    settings = {} if body is None else {"json": body}
    response = cloud.compute.request(
        path, method, microversion=_MICROVERSION, raise_exc=False, **settings
    )
    exceptions.raise_from_response(response)
    return response.json()
