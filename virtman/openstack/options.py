"""Options of the driver, in nova.conf."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

GROUP = "virtman"

OPTS = [
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
