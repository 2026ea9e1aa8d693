"""What a run of the session machine did, and the first thing that went wrong."""

from __future__ import annotations

import functools
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.session_machine import SessionMachine
    from tests.support.session_world import SessionWorld


@dataclass
class Record:
    """What a run did, and the first thing that went wrong."""

    seed: int
    goal: int
    steps: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    idle: int = 0
    told_otherwise: int = 0
    began: float = field(default_factory=time.monotonic)
    failure: BaseException | None = None
    story: list[str] = field(default_factory=list)

    def failed(self, error: BaseException, world: SessionWorld) -> None:
        if self.failure is None:
            self.failure = error
            self.story += ["-- the world's notes", *world.events[-40:]]


class Enough(Exception):
    """As many steps as were wanted have been made."""


def counted(function: Callable[..., bool | None]) -> Callable[..., None]:
    """A rule: told, counted when it did something (it returns False when it could not), and kept when it fails."""

    @functools.wraps(function)
    def run(self: SessionMachine, **arguments: Any) -> None:
        record = self.record
        if record.failure is not None:
            raise record.failure  # nothing after the first failure tells anything
        shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        record.story.append(f"{function.__name__}({shown})")
        began = time.monotonic()
        try:
            acted = function(self, **arguments)
        except BaseException as error:
            record.failed(error, self.world)
            raise
        record.seconds[function.__name__] += time.monotonic() - began
        self.age += 1
        if acted is False:
            record.idle += 1
        else:
            record.steps += 1
            record.fired[function.__name__] += 1

    return run
