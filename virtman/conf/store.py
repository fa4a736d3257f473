"""Options of the exception stores: what VMs write."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "store"
OPTS = [
    cfg.FloatOpt(
        "overcommit",
        default=1.0,
        min=0.1,
        max=100.0,
        help="How often the space for exception stores may be promised. At 1 every VM can "
        "overwrite its whole disk. Higher fits more VMs, and a full file system then costs VMs "
        "their data: watch it.",
    ),
]
