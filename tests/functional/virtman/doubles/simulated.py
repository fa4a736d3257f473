"""Puts the doubles where root verbs and look-ups are."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from types import ModuleType

import fixtures

from tests.functional.virtman.doubles.network import Network
from tests.functional.virtman.doubles.process import current, inherited
from tests.functional.virtman.doubles.verbs import LOOK_UPS, ROOT_VERBS
from virtman.stack.transport.iscsi import path as path_layer


class SimulatedKernels(fixtures.Fixture):
    """Has all verbs and look-ups reach the kernel of the process that calls."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Network()

    def _setUp(self) -> None:
        for made, modules in ((_verb, ROOT_VERBS), (_look_up, LOOK_UPS)):
            for module, functions in modules.items():
                for name in functions:
                    self.useFixture(fixtures.MockPatchObject(module, name, made(module, name)))
        self.useFixture(fixtures.MockPatchObject(path_layer, "socket", _Sockets(self.network)))
        start = inherited(threading.Thread.start)
        self.useFixture(fixtures.MonkeyPatch("threading.Thread.start", start))


def _verb(module: ModuleType, name: str) -> Callable[..., object]:
    def call(*arguments: object) -> object:
        process = current()
        with process.kernel.lock:
            process.passes(name)
            process.kernel.log.append((name, str(arguments[0]) if arguments else ""))
            return getattr(process.kernel.doubles[module], name)(*arguments)

    return call


def _look_up(module: ModuleType, name: str) -> Callable[..., object]:
    def call(*arguments: object) -> object:
        with current().kernel.lock:
            return getattr(current().kernel.doubles[module], name)(*arguments)

    return call


class _Sockets:
    """Stands for the ``socket`` module: only what is served answers."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def create_connection(self, address: tuple[str, int], timeout: float) -> _Sockets:
        if not any((one[0], one[1]) == address for one in list(self.network.targets)):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        return self

    def close(self) -> None:
        pass
