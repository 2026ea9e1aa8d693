"""Requests that wait, and what every request says of itself."""

from __future__ import annotations

from dataclasses import dataclass

from gpupool.filters import Filter
from gpupool.model.project_records import DEFAULT_PROJECT
from gpupool.scheduler.model import Decision
from gpupool.sentences import NOTHING, Sentence

#: Priority inside a project by kind, as Run:ai and KAI-Scheduler have it (build 100, train 50).
PRIORITIES = {"interactive": 100, "guaranteed": 100, "preemptible": 50}


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request that waits. Its caller's stream breaks with the pool, and asks again.

    Attributes:
        number: order of arrival.
        nodes: on how many nodes its devices may lie, see `scheduler.model.Request`.
        give_up_at: refused with reason `timeout` then; None: waits without limit.
        wants: devices kept free of later requests for this one. Not stored.
        said: why it waits, as its waiter was told; told: the last (place, `said`). Not stored, like `place` and `eta`.
        project, kind, priority: as those of the lease it will become.
        filters, pools, isolated: see `scheduler.model.Request`.
        decision: why it waits, as the scheduler said last. Not stored.
        growth: what is done so that the pool grows for it. Not stored.
    """

    id: str
    number: int
    user: str
    key: str
    milli: int | None
    mib: int | None
    count: int
    session_id: str
    label: str
    holder: str
    since: float
    give_up_at: float | None
    duration: float
    reservation: bool
    strict: bool = False
    nodes: str = "auto"
    place: int = 0
    said: Sentence = NOTHING
    eta: float | None = None
    wants: tuple[str, ...] = ()
    told: tuple[int, Sentence] | None = None
    project: str = DEFAULT_PROJECT
    kind: str = "interactive"
    priority: int = 100
    filters: tuple[Filter, ...] = ()
    pools: tuple[str, ...] = ()
    isolated: bool = True
    decision: Decision | None = None
    growth: Sentence = NOTHING

    @property
    def explanation(self) -> str:
        """Why it waits, in words, with all names."""
        return str(self.said)


def key_of(user: str, key: str) -> str:
    """The name of a request: an idempotency key belongs to its user."""
    return f"{user}\n{key}"
