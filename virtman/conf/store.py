"""Options of the exception stores: what VMs write."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "store"
OPTS = [
    cfg.StrOpt(
        "backing",
        default="file",
        choices=[
            ("file", "sparse files in [agent] state_dir, which take what was written"),
            ("lvm", "logical volumes of volume_group, which take all that can be written"),
        ],
        help="What new exception stores are made of. Those that are there stay what they are.",
    ),
    cfg.StrOpt(
        "volume_group",
        default="",
        regex=r"^[A-Za-z0-9_+.][A-Za-z0-9_+.-]{0,60}\Z|^\Z",
        help="LVM volume group of the exception stores, where backing is lvm. It must be active "
        "before the agent starts.",
    ),
    cfg.FloatOpt(
        "overcommit",
        default=1.0,
        min=0.1,
        max=100.0,
        help="How often the space for exception stores may be promised. At 1 every VM can "
        "overwrite its whole disk. Higher fits more VMs; should the space run out after all, VMs "
        "wait: see reserve.",
    ),
    cfg.IntOpt(
        "reserve",
        default=1024,
        min=0,
        help="MiB of the stores' file system that are left free. Below that, a VM that writes "
        "what it never wrote before waits until there is more. Must be more than all VMs together "
        "can write in a second. Higher: safer if something else fills the file system, or while "
        "the agent is down and lets no VM wait. 0: VMs never wait, and lose all that they wrote "
        "when the file system is full.",
    ),
    cfg.IntOpt(
        "ahead",
        default=64,
        min=1,
        help="MiB of disk space that each store gets ahead of its use once less than twice the "
        "reserve is left. Higher: VMs that write fast are safer then. Lower: less space lies idle "
        "in VMs that do not write.",
    ),
    cfg.IntOpt(
        "quota",
        default=0,
        min=0,
        help="MiB that the exception stores of a VM may take, those below its snapshots too, "
        "unless its create says otherwise. At its quota a VM waits until it gets more. It may "
        "exceed it by what it writes in two seconds. 0: as much as it can need.",
    ),
    cfg.FloatOpt(
        "warning",
        default=0.8,
        min=0.1,
        max=1.0,
        help="Share of its quota at which a VM is warned of in the log and in 'virtman list'.",
    ),
]
