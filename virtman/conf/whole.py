"""Options of copies of whole images, with which a node needs no parents."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "whole"
OPTS = [
    cfg.StrOpt(
        "folder",
        default="",
        sample_default="<state_dir>/whole",
        help="Folder of the copies of whole images. A copy takes what is not zeros of its image, "
        "and 1/128 for hashes. On the file system of the exception stores that space counts as "
        "promised, and VMs come first. Copies that are there stay where they are.",
    ),
]
