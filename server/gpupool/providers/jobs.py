"""Jobs as the ledger keeps them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Protocol

#: `intended`: written before the engine is asked; what came of it is not known until its state is here.
#: `submitted`: the engine has it. `draining`: its node takes no new leases. `cancelling`: the engine was asked to end it.
#: `over`: the engine says that it has ended; its node is still remembered by the pool.
PHASES = ("intended", "submitted", "draining", "cancelling", "over")

#: What a job is called, in the engine too.
JOB_NAME: Final = re.compile(r"[0-9a-z]{1,32}")
#: Of a job's name that its node's has.
_LETTERS: Final = 8


@dataclass(frozen=True, slots=True)
class Job:
    """A job of a provider.

    Attributes:
        id: its name, in the engine too.
        node: what its agent calls itself.
        state: what the provider wants to know again; empty: not known yet.
        why: of the latest phase, for people.
    """

    id: str
    provider: str
    node: str
    devices: int
    phase: str = "intended"
    state: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "state": dict(self.state)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Job:
        """What `as_json` made.

        Raises:
            ValueError: it is none.
        """
        names = {f.name for f in fields(cls)}
        if set(value) != names or value["phase"] not in PHASES or not isinstance(value["state"], Mapping):
            raise ValueError("the ledger holds a job of a provider that this gpupool does not understand")
        return cls(**value)


class JobBook(Protocol):
    """Where jobs are kept. What a call has stored is on the disk when it returns."""

    @property
    def pool_id(self) -> str:
        """A name of this ledger that no other has: marks its jobs in the engine."""

    def jobs(self) -> dict[str, Job]:
        """All of them, by id."""

    def find(self, job_id: str) -> Job | None:
        """One, as it is kept now; None: none has this id. Raises, like `store`, when another server has taken over."""

    def store(self, job: Job) -> None:
        """Adds or replaces one."""

    def forget(self, job_id: str) -> None:
        """Removes one that is over."""

    def limits(self) -> dict[str, dict[str, float]]:
        """What `gpupool provider scale` has set, by provider."""

    def set_limits(self, provider: str, limits: Mapping[str, float]) -> None:
        """Replaces that of one provider."""


def node_name(provider: str, job: str) -> str:
    """What the agent of a job calls itself."""
    return f"{provider}-{job[:_LETTERS]}"


def node_pattern(provider: str) -> str:
    """The names of all nodes of a provider, as `LIKE` of SQL has it."""
    return node_name(provider, "_" * _LETTERS)
