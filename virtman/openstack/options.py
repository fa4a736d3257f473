"""Options of VirtMan in nova.conf: of nova-compute with the driver, and of nova-api."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

GROUP = "virtman"

OPTS = [
    cfg.BoolOpt(
        "use_vmtsnapshot",
        default=False,
        deprecated_group="DEFAULT",
        help="Boot servers by VirtMan whose root disk has the volume type of volume_type. Set it "
        "for nova-api, and on compute nodes. While it is off, such requests are refused, and "
        "nova-compute does not look for golden volumes that it holds in vain. Servers that were "
        "built before keep working.",
    ),
    cfg.StrOpt(
        "volume_type",
        default="virtman",
        help="Volume type by which a request chooses VirtMan; nova-api and compute nodes need the "
        "same. Cinder has it as well, for the one volume that VirtMan makes of each snapshot, and "
        "of each image in each size: with the extra specification multiattach='<is> True', and a "
        "backend on which volumes of these snapshots can be made. Who may use the type may use "
        "VirtMan.",
    ),
    cfg.StrOpt(
        "agent_socket",
        default="/run/virtman/agent.sock",
        help="Unix socket of the virtman-agent of this compute node. The account of nova-compute "
        "must be in the group of the socket.",
    ),
    cfg.BoolOpt(
        "use_cachegroup",
        default=False,
        deprecated_group="DEFAULT",
        help="Put the cache group of this compute node before the Cinder volumes that servers get "
        "from now on. It needs an agent with [cache] driver = bcache. Volumes that have a cache "
        "keep it after this is turned off, until they are detached or their server is started "
        "again.",
    ),
    cfg.IntOpt(
        "image_timeout",
        default=1800,
        min=1,
        help="Seconds within which virtman-images must make an image of Glance's. Only the first "
        "servers of an image wait for that. Raise it for images that take long to download and to "
        "convert. Lower: servers fail sooner if virtman-images is stuck.",
    ),
    cfg.IntOpt(
        "golden_timeout",
        default=300,
        min=1,
        help="Seconds within which Cinder must make the volume of a snapshot or an image, for "
        "servers by volume type. Only the first of them waits for that. Raise it if the backend "
        "copies snapshots instead of sharing their blocks, and for large images: Cinder downloads "
        "an image and converts it, unless it can clone it or has it in its image-volume cache. "
        "Lower: servers fail sooner if Cinder is stuck.",
    ),
    cfg.IntOpt(
        "served_timeout",
        default=120,
        min=1,
        help="Seconds within which virtman-golden must serve the volume that Cinder made. Only the "
        "first server of a snapshot or an image waits for that. Raise it if virtman-golden makes "
        "hash trees, as all of the volume is read for that. Lower: servers fail sooner if "
        "virtman-golden does not run.",
    ),
    cfg.IntOpt(
        "ready_timeout",
        default=120,
        min=0,
        help="Seconds that the start of a server waits for its disk. The agent brings the disks "
        "back after a reboot of the node, which takes until it can read the image. Lower: a server "
        "whose image cannot be had fails sooner.",
    ),
]


def register(conf: Any) -> None:
    """Have nova's configuration know the options; repeatable."""
    conf.register_opts(OPTS, group=GROUP)
