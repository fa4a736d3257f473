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
]
