"""Options of boot profiles: what VMs read when they boot, and fetching it ahead."""

from __future__ import annotations

from oslo_config import cfg, types

GROUP = "profile"
OPTS = [
    cfg.IntOpt(
        "record",
        default=4,
        min=0,
        max=64,
        help="Number of boots from which an image's boot profile is made. Each is the first boot "
        "on a node after the image was attached. Such boots are recorded and get no help; after "
        "them, boots are helped. Higher: the profile has less of what only one boot happened to "
        "read. 0: nothing is recorded; profiles that Volt has are used.",
    ),
    cfg.Opt(
        "piece_size",
        type=types.Integer(choices=[4, 8, 16, 32, 64, 128, 256, 512, 1024]),
        default=64,
        help="KiB of a piece in a new profile; of a suspended image it has 4 KiB. Lower: less "
        "is fetched that nobody reads. But what the kernel may have read ahead is left out of a "
        "profile, up to 60 KiB behind each run of reads; of pieces shorter than that, VMs then "
        "wait for some themselves.",
    ),
    cfg.BoolOpt(
        "prefetch",
        default=True,
        help="Whether a node fetches what the profile names ahead of its VMs, as soon as an image "
        "is attached.",
    ),
    cfg.StrOpt(
        "policy",
        default="in-order",
        choices=[
            ("in-order", "as the boots that were recorded read it"),
            ("window-random", "one at random of the next 300"),
            ("stream", "what is likely to follow what VMs read"),
        ],
        help="Which piece is fetched next. With window-random, nodes that boot at once fetch "
        "different pieces, but later what VMs want first. With stream, what VMs read decides what "
        "is fetched: for workloads whose runs vary. It goes on for as long as the image is "
        "attached.",
    ),
    cfg.IntOpt(
        "window",
        default=2,
        min=1,
        max=8,
        help="Pieces in flight for each stripe, at most, and no more than 512 KiB; as many as make "
        "up 64 KiB count as one. There are fewer while VMs wait longer for what they read than "
        "without prefetch. Higher: VMs wait longer on full links, as what they read comes behind "
        "these pieces. More than 2 made no boot faster.",
    ),
    cfg.FloatOpt(
        "rate",
        default=0.0,
        min=0.0,
        help="Limit for what this node fetches ahead, in MiB/s, over all images. What VMs read "
        "themselves is not limited. 0: no limit.",
    ),
]
