"""Options of how long things about an image may take."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "image"
OPTS = [
    cfg.FloatOpt(
        "keep_time",
        default=600.0,
        min=0.0,
        help="Seconds for which an image stays attached after its last VM on this node is "
        "destroyed. Higher: the next VM starts warm more often. Lower: cache space and the place "
        "in the trees are free sooner.",
    ),
    cfg.FloatOpt(
        "attach_timeout",
        default=60.0,
        min=1.0,
        max=600.0,
        help="Seconds within which an image's parents must answer; after that the create fails "
        "and is undone. Higher: longer outages of the source are survived.",
    ),
    cfg.FloatOpt(
        "leave_timeout",
        default=60.0,
        min=1.0,
        max=3600.0,
        help="Seconds for which a node that leaves a tree waits for its children to move to "
        "their new parents. If they have not moved by then, it continues to serve and tries "
        "again.",
    ),
    cfg.FloatOpt(
        "warm_after",
        default=60.0,
        min=0.0,
        help="Seconds during which hardly a read of an image may miss the cache before its VMs "
        "read from the cache itself. Until then they read through the page cache, which they "
        "share with the nodes that read from this one: a block that several want at once is "
        "fetched once. 0: they always read through the page cache; better if the cache devices "
        "are slow and there is much memory.",
    ),
    cfg.BoolOpt(
        "verify",
        default=True,
        help="Whether data from parents is verified against the image's hash tree (dm-verity), "
        "if it has one. Wrong bytes are then read again from another host, and are never cached "
        "or seen by a VM; Volt is told who sent them. False: wrong bytes of a parent are cached "
        "and passed on to VMs and children, and nobody notices; a node reads faster from its "
        "parents if its processor hashes slower than the network.",
    ),
    cfg.StrOpt(
        "path_selector",
        default="service-time",
        choices=[
            ("service-time", "by how long it will take to do what each was asked for"),
            ("queue-length", "by how many requests each has to do"),
            ("round-robin", "in turn"),
        ],
        help="How the kernel chooses among paths of equal rank. Such paths exist with "
        "path_grouping_policy = multibus.",
    ),
    cfg.StrOpt(
        "path_grouping_policy",
        default="failover",
        choices=[
            ("failover", "the standby is read only while the parent does not work"),
            ("multibus", "parent and standby are of equal rank, and share the reads"),
        ],
        help="How a node uses the two hosts that feed a stripe. With failover each block goes "
        "through the tree once, and the source sends it about once. With multibus a node reads "
        "faster if its parent has a slower link or disk than itself; in return the hosts above, "
        "and the source, send more. A change applies to images that are attached after it.",
    ),
    cfg.FloatOpt(
        "scrub_interval",
        default=7 * 86400.0,
        min=0.0,
        help="Seconds from the end of one scrub to the next. A scrub compares the cached blocks "
        "of all images that VMs use with their hash trees, and drops wrong blocks. It reads 4 "
        "KiB of each 512 KiB that the cache lacks, and at most 64 KiB if the cache lacks only "
        "some of them. Lower: rot on local disks is found sooner, at more load. 0: only 'virtman "
        "image scrub' does it.",
    ),
    cfg.FloatOpt(
        "scrub_rate",
        default=0.25,
        min=0.01,
        help="Limit for that, in MiB of an image a second. Higher: it ends sooner, and takes "
        "more of the disks, the processor and, if the cache lacks blocks, the network. Above "
        "0.5, an image that is cached in part does not become warm meanwhile, because that needs "
        "less than one missed read a second.",
    ),
]
