"""Does what a command has to do for several things, some of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

Thing = TypeVar("Thing")
Result = TypeVar("Result")


def at_once(
    work: Callable[[Thing], Result], things: Sequence[Thing], most: int
) -> Iterator[Result]:
    """Yield what the work makes of things, as it is done.

    Once it has failed, or is interrupted, it begins with no other thing. What is under way comes to
    its end first, then the first error is raised.

    :param most: of which it is under way at once
    """
    if len(things) == 1:  # here, where an interrupt reaches it
        yield work(things[0])
        return
    # takes long to load
    from concurrent.futures import ThreadPoolExecutor, as_completed  # noqa: PLC0415

    failed = None
    with ThreadPoolExecutor(most) as pool:
        begun = [pool.submit(work, one) for one in things]
        try:
            for one in as_completed(begun):
                if one.cancelled():
                    continue
                error = one.exception()
                if error is None:
                    yield one.result()
                else:
                    failed = failed or error
                    _cancel(begun)
        finally:
            _cancel(begun)
    if failed is not None:
        raise failed


def _cancel(begun: Sequence[Future[Result]]) -> None:
    for one in begun:
        one.cancel()
