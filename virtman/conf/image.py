"""Options of how long things about an image may take."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "image"
OPTS = [
    cfg.FloatOpt(
        "keep_time",
        default=600.0,
        min=0.0,
        help="Seconds for which an image stays attached after its last VM on this node went. "
        "Higher: the next VM starts warm more often. Lower: cache space and the place in the "
        "trees are free sooner.",
    ),
    cfg.FloatOpt(
        "attach_timeout",
        default=60.0,
        min=1.0,
        max=600.0,
        help="Seconds within which an image's parents must have been reached; then the create "
        "fails and is undone. Higher: rides out longer outages of the source.",
    ),
    cfg.FloatOpt(
        "leave_timeout",
        default=60.0,
        min=1.0,
        max=3600.0,
        help="Seconds for which a node that leaves a tree waits for its children to go to "
        "their new parents. If they have not gone by then it keeps serving and tries again.",
    ),
    cfg.FloatOpt(
        "warm_after",
        default=60.0,
        min=0.0,
        help="Seconds for which hardly a read of an image may miss the cache before its VMs read "
        "from the cache itself. Until then they read through the page cache, which they share with "
        "the nodes that read from this one, so that a block that several want at once is fetched "
        "once. 0: they always do; better where the cache devices are slow and memory is plenty.",
    ),
    cfg.BoolOpt(
        "verify",
        default=True,
        help="Whether what parents send is held against the image's hash tree (dm-verity), if it "
        "has one. Then wrong bytes are read again from somebody else, never cached or seen by a "
        "VM, and whoever sent them is reported to Volt. False: wrong bytes of a parent are "
        "cached, handed on to VMs and children, and nobody notices; a node reads faster from its "
        "parents where its processor cannot hash as fast as the network is.",
    ),
    cfg.StrOpt(
        "path_selector",
        default="service-time",
        choices=[
            ("service-time", "by how long it will take to do what each was asked for"),
            ("queue-length", "by how many requests each has to do"),
            ("round-robin", "in turn"),
        ],
        help="How the kernel chooses among paths of equal rank. There are such with "
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
        "through the tree once, and the source sends it about once. With multibus a node whose "
        "parent has a slower link or disk than itself reads faster; in return the hosts above, "
        "and the source, send more. A change counts for images that are attached from then on.",
    ),
    cfg.FloatOpt(
        "scrub_interval",
        default=7 * 86400.0,
        min=0.0,
        help="Seconds after the end of one round until what is cached of all images that VMs use "
        "is compared with their hash trees again, and wrong blocks dropped. 4 KiB are read of each "
        "512 KiB that the cache lacks, at most 64 KiB where it lacks only some of them. Lower: rot "
        "on local disks is found sooner, at more load. 0: never, but by 'virtman image scrub'.",
    ),
    cfg.FloatOpt(
        "scrub_rate",
        default=0.25,
        min=0.01,
        help="MiB of an image a second, at most, for which that is done. Higher: it ends sooner "
        "and takes more of the disks, the processor and, where the cache lacks blocks, the "
        "network. Above 0.5, an image that is cached in part does not become warm meanwhile, "
        "which takes less than one read a second that the cache lacks.",
    ),
]
