"""What doubles stand for: all functions of the agent's that meet the kernel."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import partial
from types import ModuleType

from virtman import privileged, sysfs
from virtman.stack import page_cache
from virtman.stack.transport.iscsi import sessions, targets


def _root_verbs(module: ModuleType) -> dict[str, Callable[..., object]]:
    return {
        name: one.args[0]  # without what calls it in the privileged process
        for name, one in vars(module).items()
        if isinstance(one, partial) and privileged.context.is_entrypoint(one)
    }


def _look_ups(module: ModuleType) -> dict[str, Callable[..., object]]:
    return {
        name: one
        for name, one in vars(module).items()
        if inspect.isfunction(one)
        and one.__module__ == module.__name__
        and not name.startswith("_")
    }


_MODULES = [
    importlib.import_module(one.name)
    for one in pkgutil.iter_modules(privileged.__path__, f"{privileged.__name__}.")
]

ROOT_VERBS = {module: found for module in _MODULES if (found := _root_verbs(module))}
LOOK_UPS = {module: _look_ups(module) for module in (sysfs, page_cache, sessions, targets)}
