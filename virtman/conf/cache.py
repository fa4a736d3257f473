"""Options of the node's cache group."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "cache"
OPTS = [
    cfg.StrOpt(
        "driver",
        default="bcache",
        choices=[
            ("bcache", "keeps what was read once; needs the kernel module bcache"),
            (
                "dmcache",
                "keeps blocks that were read several times, on a slice of the devices for "
                "each image; needs the kernel modules dm-cache and dm-cache-smq",
            ),
            (
                "flashcache",
                "keeps what was read once, on a slice of the devices for each image; "
                "needs the module flashcache, which no current kernel has, and its commands",
            ),
            ("none", "keeps nothing: what is read again is fetched again; needs no devices"),
        ],
        help="Cache driver, which keeps blocks that were read from images on local devices. "
        "Change it only while no image is attached.",
    ),
    cfg.ListOpt(
        "devices",
        default=[],
        help="Local block devices, best SSDs, that together cache what is read of all images. "
        "They are formatted when first used; a device that holds other data is refused. Larger "
        "is better: a cache that is nearly full fetches some blocks again.",
    ),
]
