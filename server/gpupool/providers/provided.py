"""A provider, with what has been seen of it, and how often it is looked at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gpupool.providers.contract import Provider
from gpupool.providers.elasticity import Scale, Trouble
from gpupool.providers.pool import NodeStands
from gpupool.providers.seen_offer import as_seen
from gpupool.providers.settings import changed

_UNPRINTABLE: Final = re.compile(r"[^ -~]")


@dataclass(frozen=True, slots=True)
class Pace:
    """How often, in seconds.

    Attributes:
        look: between looks at the engine.
        settle: a submit whose answer was lost may still arrive for so long.
        insist: before a job is told again to end.
        sweep: between looks for jobs that nobody knows.
    """

    look: float = 5.0
    settle: float = 60.0
    insist: float = 10.0
    sweep: float = 60.0


@dataclass(slots=True)
class Provided:
    """A provider with what has been seen of it.

    Attributes:
        file_scale: what it may do as the file says.
        scale: what it may do now: limits that were set count in place of the file's, and what its newest node is like.
        trouble: with its jobs; over when the agent of one has connected.
        silence: it does not say how its jobs are; over when it does.
    """

    name: str
    provider: Provider
    file_scale: Scale
    scale: Scale
    newest: NodeStands | None = None
    trouble: Trouble = field(default_factory=Trouble)
    silence: Trouble = field(default_factory=Trouble)
    swept: float | None = None

    @property
    def problem(self) -> Trouble:
        """What is wrong now."""
        return self.silence if self.silence.failures else self.trouble

    def limit(self, limits: Mapping[str, float]) -> None:
        """Counts from now on, see `settings.changed`. Raises SettingsError: the figures make no sense together."""
        said = changed(f"provider {self.name}", self.file_scale, limits)
        self.scale = said if self.newest is None else as_seen(said, self.newest)

    def see(self, node: NodeStands) -> bool:
        """A node that has just connected; whether the next is promised to be otherwise than before."""
        before, self.newest = self.scale, node
        said = replace(
            self.scale,
            device_mib=self.file_scale.device_mib,
            node_pool=self.file_scale.node_pool,
            offer=self.file_scale.offer,
        )
        self.scale = as_seen(said, node)
        return self.scale != before


def words(said: object) -> str:
    """Of an engine, for people: printable and bounded."""
    return _UNPRINTABLE.sub(" ", str(said))[:200]
