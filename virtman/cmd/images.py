"""The ``virtman-images`` command: makes Glance's images known to Volt, and serves them."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from virtman import atomic_file, source
from virtman.cmd import rounds, settings
from virtman.cmd.options import size, version_option
from virtman.coordinator.auth import Access
from virtman.coordinator.client import VoltClient
from virtman.coordinator.keystone import Tokens
from virtman.source import Storage

_TIMEOUT = 30.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@version_option("virtman-images")
@click.option(
    "--cloud",
    metavar="NAME",
    help="Cloud of clouds.yaml with an account that may download all images; default: the OS_ "
    "variables.",
)
@settings.volt
@settings.portal
@click.option(
    "--folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    default="/var/lib/virtman/glance",
    show_default=True,
    help="Folder of the images. A raw image in Glance's file store takes no room if it is on the "
    "same file system.",
)
@click.option(
    "--largest",
    metavar="SIZE",
    type=size,
    default="1T",
    show_default=True,
    help="Size that an image may have at most.",
)
@click.option(
    "--limit",
    metavar="SIZE",
    type=size,
    help="Room that all images may take together; default: all that the file system has. The least "
    "recently used that no host needs make room for others.",
)
@click.option(
    "--ceph-pool",
    metavar="POOL",
    help="Pool of Ceph for clones of Glance's raw images, which are then mapped and not copied; "
    "default: all images are copied.",
)
@click.option(
    "--ceph-user",
    metavar="NAME",
    default="virtman",
    show_default=True,
    help="Account of Ceph that may write to that pool and read that of Glance.",
)
@click.option(
    "--ceph-conf",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    default="/etc/ceph/ceph.conf",
    show_default=True,
    help="Configuration file of Ceph.",
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Images that are made at the same time.",
)
@click.option(
    "--hash-tree/--no-hash-tree",
    default=True,
    show_default=True,
    help="Whether nodes can verify what they read.",
)
@click.option(
    "--keep-time",
    type=click.FloatRange(0),
    default=3600.0,
    show_default=True,
    help="Seconds for which an image is kept after its last server. Longer: the next server starts "
    "faster. Shorter: less space is used.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 60),
    default=1.0,
    show_default=True,
    help="Seconds between two looks at what is wanted. Longer: the first server of an image waits "
    "longer. Shorter: more requests to Volt.",
)
def main(
    cloud: str | None,
    volt: str,
    token_file: str,
    cafile: str,
    ip: str,
    port: int,
    host: str,
    folder: Path,
    largest: int,
    limit: int | None,
    ceph_pool: str | None,
    ceph_user: str,
    ceph_conf: str,
    at_once: int,
    hash_tree: bool,
    keep_time: float,
    interval: float,
) -> None:
    """Make the images of Glance that servers want raw, serve them, and tell Volt.

    Run as root on a storage host, or where Glance has its files. Several hosts share the work. What
    is served stays so when this ends, and the next one takes it over.

    Without a token file, Volt has to know the account by Keystone.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    # These come with the extra "openstack".
    from keystoneauth1.adapter import Adapter  # noqa: PLC0415
    from openstack import config  # noqa: PLC0415

    from virtman.openstack.ceph import Ceph  # noqa: PLC0415
    from virtman.openstack.glance import Glance  # noqa: PLC0415
    from virtman.openstack.importer import Importer  # noqa: PLC0415
    from virtman.openstack.room import Room  # noqa: PLC0415
    from virtman.openstack.serving import Served  # noqa: PLC0415

    source.become_privileged()  # which only this thread can
    region = config.OpenStackConfig().get_one(cloud=cloud)
    session = region.get_session()
    image_api = Adapter(
        session,
        "image",
        interface=region.get_interface("image"),
        region_name=region.get_region_name("image"),
        version="2",
    )
    access = Access(token_file, cafile, Tokens(session))
    atomic_file.prepare(folder)
    importer = Importer(
        host,
        VoltClient(volt, host, _TIMEOUT, access),
        Glance(image_api),
        Ceph(ceph_conf, ceph_user, ceph_pool, host),
        Served(Storage(host, ip, port), volt, access, hashed=hash_tree),
        Room(folder, limit),
        largest,
        keep_time,
        at_once,
    )
    rounds.run(importer.tend, interval, "imports")
    importer.stop()


if __name__ == "__main__":
    main()
