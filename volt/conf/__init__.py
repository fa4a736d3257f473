"""Which options Volt has: one group a file."""

from collections.abc import Sequence
from types import ModuleType

from oslo_config import cfg

from volt.conf import api, database, heartbeat, notify, peers, placement, source

GROUPS: tuple[ModuleType, ...] = (api, database, heartbeat, notify, peers, placement, source)


def load(files: Sequence[str] | None = None) -> cfg.ConfigOpts:
    """Read the options from these files, or from where oslo.config looks for volt.conf.

    Raises oslo_config.cfg.Error for a missing file or a value out of its range.
    """
    conf = cfg.ConfigOpts()
    for group in GROUPS:
        conf.register_opts(group.OPTIONS, group=group.GROUP)
    conf([], project="volt", default_config_files=None if files is None else list(files))
    for group in GROUPS:
        for option in group.OPTIONS:
            conf[group.GROUP][option.dest]  # a wrong value must fail now, not at first use
    heartbeat.check(conf)
    return conf


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return all options for oslo-config-generator."""
    return [(group.GROUP, list(group.OPTIONS)) for group in GROUPS]
