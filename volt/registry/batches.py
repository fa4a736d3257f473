"""How calls that want the same thing at the same moment take turns, or share one piece of work."""

import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Event, Lock
from typing import Generic, TypeVar, cast
from weakref import WeakValueDictionary

from volt.errors import Unavailable

LOG = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Result = TypeVar("Result")


class _Call(Generic[Item, Result]):
    """One caller's item, and what became of it; a Future takes four times as long."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.result: Result | None = None
        self.error: Exception | None = None
        self.leads = False  # whether this caller works for all of the next batch
        self.woken = Event()  # set once there is an answer, or once it leads


class Batches(Generic[Key, Item, Result]):
    """Calls of one key at a time; those that come meanwhile wait and then go together.

    Under load a transaction's fixed cost is shared, and who waits longest goes first, so
    that no caller is left behind. Who waits longest does the work of its batch too, and of no
    other: as long as others come, a caller that worked for them all would get no answer.
    """

    def __init__(
        self,
        work: Callable[[Key, Sequence[Item]], Sequence[Result]],
        largest: int,
        gathering: float = 0,
    ) -> None:
        """Let ``work`` answer up to ``largest`` items of a key, in their order.

        The first caller waits ``gathering`` seconds for others, for work that is not urgent.
        Where it fails, it is given the items one by one, so that only those that are at fault
        fail; but not while Volt is unavailable, when each would fail.
        """
        self._work = work
        self._largest = largest
        self._gathering = gathering
        # Guards the two below; never held while anything is worked on.
        self._lock = Lock()
        self._waiting: dict[Key, deque[_Call[Item, Result]]] = defaultdict(deque)
        self._busy: set[Key] = set()

    def run(self, key: Key, item: Item) -> Result:
        """Return what the work made of the item."""
        mine: _Call[Item, Result] = _Call(item)
        with self._lock:
            self._waiting[key].append(mine)
            is_alone = mine.leads = key not in self._busy
            self._busy.add(key)
        if not is_alone:
            mine.woken.wait()
        elif self._gathering:
            time.sleep(self._gathering)
        if mine.leads:
            self._lead(key)
        if mine.error is not None:
            raise mine.error
        return cast("Result", mine.result)

    def _lead(self, key: Key) -> None:
        """Answer the first who wait, and let the next one lead."""
        with self._lock:
            waiting = self._waiting[key]
            batch = [waiting.popleft() for _ in range(min(len(waiting), self._largest))]
        self._answer(key, batch)
        with self._lock:
            if waiting:
                # Before those who are answered: the database is busy while they send it on.
                waiting[0].leads = True
                waiting[0].woken.set()
            else:
                self._busy.discard(key)
                del self._waiting[key]
        for call in batch:
            call.woken.set()

    def _answer(self, key: Key, batch: Sequence[_Call[Item, Result]]) -> None:
        try:
            results = self._work(key, [call.item for call in batch])
            for call, result in zip(batch, results, strict=True):
                call.result = result
        except Exception as err:
            if len(batch) > 1 and not isinstance(err, Unavailable):
                LOG.debug("A batch of %d failed (%s)", len(batch), err)
                for call in batch:
                    self._answer(key, [call])
                return
            for call in batch:
                call.error = err


class _Turn:
    """What one caller at a time holds; a plain lock cannot be referred to weakly."""

    def __init__(self) -> None:
        self._lock = Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()


class Turns(Generic[Key]):
    """Lets one caller of a key in at a time, before it takes anything that is scarce.

    All who write to an image wait for its row anyway. Those who wait in the database hold a
    connection each, and would soon have all that a worker may have.
    """

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[Key, _Turn] = WeakValueDictionary()

    def of(self, key: Key) -> _Turn:
        """Return what to hold meanwhile."""
        return self._turns.setdefault(key, _Turn())

    @contextmanager
    def of_all(self, keys: Iterable[Key]) -> Iterator[None]:
        """Take a turn at each of these keys, in the order in which they are given.

        All who take several give them in the same order.
        """
        with ExitStack() as turns:
            for key in keys:
                turns.enter_context(self.of(key))
            yield
