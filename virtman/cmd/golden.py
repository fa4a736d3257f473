"""The ``virtman-golden`` command: looks after golden volumes on a storage node."""

from __future__ import annotations

import logging

import click

from virtman.cmd import rounds, settings
from virtman.cmd.options import version_option
from virtman.coordinator.auth import Access
from virtman.coordinator.keystone import Tokens
from virtman.openstack.cinder import API_VERSION, Cinder
from virtman.openstack.keeper import Keeper
from virtman.openstack.serving import Brick, Served
from virtman.source import Storage


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@version_option("virtman-golden")
@click.option(
    "--cloud",
    metavar="NAME",
    help="Cloud of clouds.yaml with nova's own account; default: the OS_ variables.",
)
@settings.volt
@settings.portal
@click.option(
    "--lock-path",
    metavar="FOLDER",
    default="/run/lock/virtman-golden",
    show_default=True,
    help="Folder of os-brick's locks. If Cinder or Nova attach volumes on this host too, it must "
    "be theirs.",
)
@click.option("--multipath/--no-multipath", help="Whether to connect volumes by all their paths.")
@click.option(
    "--hash-tree/--no-hash-tree",
    default=False,
    show_default=True,
    help="Whether nodes can verify what they read. All of a volume is then read before its first "
    "server starts: raise [virtman] served_timeout of nova-compute.",
)
@click.option(
    "--keep-time",
    default=600.0,
    show_default=True,
    help="Seconds for which a volume is kept after its last server. Longer: the next server starts "
    "faster. Shorter: less space is used.",
)
@click.option(
    "--interval",
    default=2.0,
    show_default=True,
    help="Seconds between two requests for Cinder's volumes. Longer: the first server of an image "
    "waits longer. Shorter: more requests.",
)
def main(
    cloud: str | None,
    volt: str,
    token_file: str,
    cafile: str,
    ip: str,
    port: int,
    host: str,
    lock_path: str,
    multipath: bool,
    hash_tree: bool,
    keep_time: float,
    interval: float,
) -> None:
    """Serve Cinder's golden volumes to the compute nodes. Run as root.

    Without a token file, Volt has to know the account by Keystone.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    # These come with the extra "openstack".
    from cinderclient import client  # noqa: PLC0415
    from openstack import config  # noqa: PLC0415

    region = config.OpenStackConfig().get_one(cloud=cloud)
    session = region.get_session()
    access = Access(token_file, cafile, Tokens(session))
    served = Served(Storage(host, ip, port), volt, access, hashed=hash_tree)
    cinder = client.Client(API_VERSION, session=session, region_name=region.region_name)
    brick = Brick(host, ip, lock_path, multipath=multipath)
    keeper = Keeper(Cinder(cinder), served, brick, host, keep_time)
    # What is served stays so when this ends: nodes read it, and the next one takes over.
    rounds.run(keeper.tend, interval, "Cinder")


if __name__ == "__main__":
    main()
