"""Keeps the VMs' chains of exception stores short, one merge after another."""

from __future__ import annotations

import logging
import threading

from virtman.chains import Store
from virtman.errors import VirtmanError
from virtman.stores import Stores

LOG = logging.getLogger(__name__)

_LOOK = 0.5
_AGAIN = 30.0


class Merger:
    """A thread. What it begins the kernel goes on with; an agent that starts ends it."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="merger", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing any more."""
        self._stopped.set()
        self.stores.changed.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.stores.changed.wait(_AGAIN)
            self.stores.changed.clear()
            for instance in self.stores.records.all():
                try:
                    self.merge(instance.vm)
                except (VirtmanError, OSError) as err:
                    LOG.warning("merging stores of VM %s: %s", instance.vm, err)
                except Exception:
                    LOG.exception("merging stores of VM %s", instance.vm)

    def merge(self, vm: str) -> None:
        """Merge what there is to merge in a VM's chain."""
        while not self._stopped.is_set():
            found = self.stores.next_merge(vm)
            if found is None:
                return
            upper = self.stores.begin(found)
            if upper is None or self._await(upper):
                continue
            return

    def _await(self, store: Store) -> bool:
        """Wait until a store is empty and end the merge; tell whether that came about."""
        while not self.stores.is_emptied(store):
            if self._stopped.wait(_LOOK):
                return False
        self.stores.end(store)
        return True
