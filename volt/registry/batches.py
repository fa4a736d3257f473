"""How calls that want the same thing at the same moment take turns, or share one piece of work."""

import logging
import math
import time
from collections import deque
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


class Batches(Generic[Item, Result]):
    """One call at a time; those that come meanwhile wait and then go together.

    Under load a transaction's fixed cost is shared, and who waits longest goes first, so
    that no caller is left behind. Who waits longest does the work of its batch too, and of no
    other: as long as others come, a caller that worked for them all would get no answer.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Result]],
        largest: int,
        alone: float = 0,
        between: float = 0,
    ) -> None:
        """Let ``work`` answer up to ``largest`` items, in their order.

        A batch that is not full waits for others. If nothing is worked on, it is ``alone``
        seconds, for work that is not urgent. And up to ``between`` seconds are between a batch and
        the next: who was answered may ask for more, and would else be late for that one. It is
        less once as many wait as were answered or waited when the last batch ended.
        Where work fails, it is given the items one by one, so that only those that are at fault
        fail; but not while Volt is unavailable, when each would fail.
        """
        self._work = work
        self._largest = largest
        self._alone = alone
        self._between = between
        # Guards what follows; never held while anything is worked on.
        self._lock = Lock()
        self._waiting: deque[_Call[Item, Result]] = deque()
        self._is_busy = False
        self._ended = -math.inf  # when the last batch was answered
        self._expected = 0  # who was answered or waited then
        self._all = Event()  # set once so many wait

    def run(self, item: Item) -> Result:
        """Return what the work made of the item."""
        mine: _Call[Item, Result] = _Call(item)
        with self._lock:
            self._waiting.append(mine)
            if len(self._waiting) >= self._expected:
                self._all.set()
            is_alone = mine.leads = not self._is_busy
            self._is_busy = True
        if not is_alone:
            mine.woken.wait()
        if mine.leads:
            self._gather(self._alone if is_alone else 0)
            self._lead()
        if mine.error is not None:
            raise mine.error
        return cast("Result", mine.result)

    def _gather(self, least: float) -> None:
        """Wait for others: so many seconds at least."""
        if len(self._waiting) >= self._largest:
            return
        if least > 0:
            time.sleep(least)
        left = self._ended + self._between - time.monotonic()
        if left > 0:
            self._all.wait(left)

    def _lead(self) -> None:
        """Answer the first who wait, and let the next one lead."""
        with self._lock:
            count = min(len(self._waiting), self._largest)
            batch = [self._waiting.popleft() for _ in range(count)]
        self._answer(batch)
        with self._lock:
            self._ended = time.monotonic()
            self._expected = min(len(batch) + len(self._waiting), self._largest)
            self._all.clear()
            self._is_busy = bool(self._waiting)
            if self._waiting:
                # Before those who are answered: the database is busy while they send it on.
                self._waiting[0].leads = True
                self._waiting[0].woken.set()
        for call in batch:
            call.woken.set()

    def _answer(self, batch: Sequence[_Call[Item, Result]]) -> None:
        try:
            results = self._work([call.item for call in batch])
            for call, result in zip(batch, results, strict=True):
                call.result = result
        except Exception as err:
            if len(batch) > 1 and not isinstance(err, Unavailable):
                LOG.debug("A batch of %d failed (%s)", len(batch), err)
                for call in batch:
                    self._answer([call])
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
