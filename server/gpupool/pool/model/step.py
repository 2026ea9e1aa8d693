"""What every rule of the machine works with: the state, the time, and the instructions so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gpupool.model.instructions import Instruction, Journal
from gpupool.model.state import State
from gpupool.pool.model.consolidation import Consolidation
from gpupool.pool.model.queue_memory import QueueMemory
from gpupool.pool.model.timers import Timers
from gpupool.scheduler.model import Quota
from gpupool.sentences import Sentence, plain


@dataclass(frozen=True, slots=True)
class Ids:
    """Where new names come from; tests count, the server draws random ones.

    Attributes:
        session: 32 hex characters.
        lease: a short unique name.
        token: 64 hex characters, unguessable.
        requests: numbers for instructions that a worker confirms; never the same twice.
    """

    session: Callable[[], str]
    lease: Callable[[], str]
    token: Callable[[], str] = field(repr=False)
    requests: Iterator[int]


@dataclass(slots=True)
class Step:
    """One event being handled."""

    state: State
    timers: Timers
    quotas: Mapping[str, Quota]
    ids: Ids
    now: float
    out: list[Instruction] = field(default_factory=list)
    #: Whether capacity, health or the queue changed, so that waiting requests must be looked at again.
    reschedule: bool = False
    #: What is remembered of the queue between steps.
    queue: QueueMemory = field(default_factory=QueueMemory)
    consolidate: Consolidation = Consolidation.IDLE
    #: Whether those who wait are told what would help: finding it takes longer than all decisions.
    advises: bool = True
    #: Whether anybody reads why they wait.
    says: bool = True

    def do(self, instruction: Instruction) -> None:
        self.out.append(instruction)

    def journal(
        self,
        kind: str,
        said: Sentence | str,
        *,
        user: str = "",
        lease_id: str = "",
        session_id: str = "",
        node: str = "",
        data: Mapping[str, object] | None = None,
    ) -> None:
        """Adds a line to the journal. Words that name a user are a sentence of the catalogue, no text."""
        self.do(Journal(kind, plain(said), user, lease_id, session_id, node, data or {}))

    def request(self) -> int:
        return next(self.ids.requests)

    def connection_of(self, node: str) -> int | None:
        record = self.state.nodes.get(node)
        return record.connection if record else None
