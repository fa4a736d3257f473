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
        help="What new exception stores are made of. Existing ones stay what they are.",
    ),
    cfg.StrOpt(
        "volume_group",
        default="",
        regex=r"^[A-Za-z0-9_+.][A-Za-z0-9_+.-]{0,60}\Z|^\Z",
        help="LVM volume group of the exception stores, if backing is lvm. It must be active "
        "before the agent starts.",
    ),
    cfg.FloatOpt(
        "overcommit",
        default=1.0,
        min=0.1,
        max=100.0,
        help="How many times the space for exception stores may be promised. At 1 every VM can "
        "overwrite its whole disk. Higher: more VMs fit; if the space runs out after all, VMs "
        "wait: see reserve.",
    ),
    cfg.IntOpt(
        "reserve",
        default=1024,
        min=0,
        help="MiB of the stores' file system that are kept free. Below that, a VM that writes to "
        "new places waits until there is more space. It must be more than all VMs together can "
        "write in a second. Higher: safer if something else fills the file system, or while the "
        "agent is down and cannot make VMs wait. 0: VMs never wait, and lose all their writes "
        "when the file system is full.",
    ),
    cfg.IntOpt(
        "ahead",
        default=64,
        min=1,
        help="MiB of disk space that each store gets in advance once less than twice the reserve "
        "is left. Higher: safer for VMs that write fast. Lower: less space lies idle in VMs that "
        "do not write.",
    ),
    cfg.IntOpt(
        "quota",
        default=0,
        min=0,
        help="MiB that the exception stores of a VM may take, including those below its "
        "snapshots, unless its create says otherwise. At its quota a VM waits until it gets "
        "more. It may exceed the quota by what it writes in two seconds. 0: no limit.",
    ),
    cfg.FloatOpt(
        "warning",
        default=0.8,
        min=0.1,
        max=1.0,
        help="Share of its quota at which a VM is reported in the log and by 'virtman list'.",
    ),
]
