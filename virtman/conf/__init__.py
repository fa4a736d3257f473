"""The agent's options, one group a file."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

from virtman.conf import (
    agent,
    cache,
    export,
    image,
    keystone,
    metrics,
    notify,
    peers,
    profile,
    store,
    volt,
    whole,
)

_GROUPS = (
    agent,
    cache,
    export,
    image,
    keystone,
    metrics,
    notify,
    peers,
    profile,
    store,
    volt,
    whole,
)


def register(conf: cfg.ConfigOpts) -> cfg.ConfigOpts:
    """Register every option on ``conf`` and return it."""
    for group in _GROUPS:
        conf.register_opts(group.OPTS, group=group.GROUP)
    return conf


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """Return the options by group, for the sample generator."""
    return [(group.GROUP, group.OPTS) for group in _GROUPS]
