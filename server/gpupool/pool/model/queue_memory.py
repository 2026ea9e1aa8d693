"""What is remembered of the queue from one step to the next. Nothing of it is needed: it can be made anew at any time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gpupool.model.state import State
from gpupool.pool.model.waiting import Waiting
from gpupool.scheduler.model import Decision, Request
from gpupool.scheduler.pool_view import PoolView

if TYPE_CHECKING:
    from gpupool.pool.queue.queue_pass import QueuePass


class QueueMemory:
    """The lanes of waiting requests, and the last look at them.

    Attributes:
        waiting: the requests, in lanes.
        latest: the last look at all of them; None: something has changed since.
        looked_at: when that was.
        told_at: when all were told their places.
        untold: whether places have changed since.
        began_at: when the pool was started; -inf: long ago.
        full: what was said to wishes for which there was no room, with the pool as it was then: while it stays so, it need not
            be looked at again.
    """

    def __init__(self) -> None:
        self.waiting = Waiting()
        self.latest: QueuePass | None = None
        self.looked_at = float("-inf")
        self.told_at = float("-inf")
        self.untold = False
        self.began_at = float("-inf")
        self.full: dict[Request, tuple[PoolView, Decision]] = {}
        #: The devices of the moment that it is of.
        self._full_of: object = None
        self._rollbacks: int | None = None

    def next_number(self) -> int:
        """The number of the next request: one more than that of any that waits."""
        return self.waiting.highest() + 1

    def holds(self, state: State) -> bool:
        """Whether the last look can be gone by."""
        return self.latest is not None and self._rollbacks == state.rollbacks

    @contextlib.contextmanager
    def passed_over(self, state: State) -> Iterator[None]:
        """What happens to the state meanwhile is taken back, and was followed by another memory: this one stays as it is."""
        known = self._rollbacks == state.rollbacks
        yield
        if known:
            self._rollbacks = state.rollbacks

    def known_as_full(self, view: PoolView, wish: Request) -> Decision | None:
        """What was said to the wish in this very view, in which it has no room; None: not known."""
        then, decision = self.full.get(wish, (None, None))
        return decision if then is not None and then.is_same(view) else None

    def note_full(self, view: PoolView, wish: Request, decision: Decision) -> None:
        """Only of one moment: nothing is known of another one, and views of before are costly to keep."""
        if self._full_of is not view.devices:
            self.full.clear()
            self._full_of = view.devices
        self.full[wish] = view, decision

    def forget_full(self) -> None:
        """Nobody waits."""
        self.full.clear()
        self._full_of = None

    def changed(self) -> None:
        """The last look is out of date, though nobody needs another one now."""
        self.latest = None

    def forget(self) -> None:
        """Makes everything anew at the next look: what tells requests apart has changed."""
        self.latest = None
        self._rollbacks = None

    def follow(self, state: State, limited: Callable[[str], bool]) -> None:
        """Brings the lanes in step with the state; a step that was taken back leaves nothing here."""
        if self._rollbacks != state.rollbacks:
            self._rollbacks = state.rollbacks
            self.latest = None
            self.waiting.rebuild(state.requests.values(), limited)
        else:
            changed = self.waiting.follow(state, limited)
            if self.latest is not None:
                for lane in changed:
                    self.latest.recount(self.waiting, lane)
