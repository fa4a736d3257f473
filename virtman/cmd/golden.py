"""The ``virtman-golden`` command: looks after golden volumes on a storage node."""

from __future__ import annotations

import logging
import signal
import socket
import threading

import click

from virtman.coordinator.auth import Access
from virtman.coordinator.keystone import Tokens
from virtman.openstack.cinder import API_VERSION, Cinder
from virtman.openstack.keeper import Keeper
from virtman.openstack.serving import Brick, Served
from virtman.source import Storage

LOG = logging.getLogger(__name__)

_PORT = 3260


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--cloud", help="Of clouds.yaml, with nova's own account; the OS_ variables if none.")
@click.option("--volt", required=True, help="Where Volt answers.")
@click.option(
    "--token-file",
    default="",
    help="File with a token of role operator; without it Volt has to know the account by Keystone.",
)
@click.option("--cafile", default="", help="Certificates that vouch for Volt's.")
@click.option("--ip", required=True, help="Address at which the first nodes read the images.")
@click.option("--port", default=_PORT, show_default=True, help="Of the iSCSI target.")
@click.option("--host", default=lambda: socket.gethostname().lower(), help="Name of this host.")
@click.option(
    "--lock-path",
    default="/run/lock/virtman-golden",
    show_default=True,
    help="Folder of os-brick's locks: that of Cinder or nova where these attach volumes too.",
)
@click.option("--multipath/--no-multipath", help="Reach volumes by all paths.")
@click.option(
    "--hash-tree/--no-hash-tree",
    default=False,
    show_default=True,
    help="Let nodes verify what they read. All of a volume is read before its first server "
    "starts: raise [virtman] served_timeout of nova-compute accordingly.",
)
@click.option(
    "--keep-time",
    default=600.0,
    show_default=True,
    help="Seconds for which a volume stays after its last server. Longer: servers that come "
    "again start faster. Shorter: less space is held.",
)
@click.option(
    "--interval",
    default=2.0,
    show_default=True,
    help="Seconds between two looks at Cinder. Longer: fewer requests, and the first server of an "
    "image waits longer.",
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
    """Serve the golden volumes of Cinder to the nodes of VirtMan. Needs root."""
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
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    # What is served stays so when this ends: nodes read it, and the next one takes over.
    while not ended.is_set():
        try:
            keeper.tend()
        except Exception as err:
            LOG.warning("Cinder: %s", err)
        ended.wait(interval)
