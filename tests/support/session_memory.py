"""A model of the device memory of one session: every byte, from the same commands that the program is given.

What a program posted and has not waited for may be missing when its share is taken away, but only from some point
on: the model keeps it apart until an answer confirms it, and when none came, finds the point in what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

#: Kernels of tests/support/session_program.c, by their number there.
STEP, MIX, TABLE, KEEP = range(4)
TABLE_WORDS: Final = 256


class BytesLost(AssertionError):
    """What is on the device is not what the program made of it."""


@dataclass(eq=False, slots=True)
class Buffer:
    """A range of device memory.

    `table`: the variable of a module, which is not freed by itself; `hidden`: one whose address the program does not
    know. `pooled`: allocated in the order of a stream.
    """

    address: int
    size: int
    name: str
    table: bool = False
    hidden: bool = False
    pooled: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    to: Buffer
    start: int
    count: int
    seed: int

    def apply(self, memory: Mapping[Buffer, Words]) -> None:
        memory[self.to][self.start : self.start + self.count] = pattern(self.seed, self.count)


@dataclass(frozen=True, slots=True)
class Fill:
    to: Buffer
    start: int
    count: int
    value: int

    def apply(self, memory: Mapping[Buffer, Words]) -> None:
        memory[self.to][self.start : self.start + self.count] = self.value


@dataclass(frozen=True, slots=True)
class Copy:
    """Between two buffers; within one, the ranges do not overlap."""

    to: Buffer
    start: int
    source: Buffer
    source_start: int
    count: int

    def apply(self, memory: Mapping[Buffer, Words]) -> None:
        taken = memory[self.source][self.source_start : self.source_start + self.count]
        memory[self.to][self.start : self.start + self.count] = taken


@dataclass(frozen=True, slots=True)
class Launch:
    """`times` launches of one kernel on a whole range."""

    kernel: int
    to: Buffer
    source: Buffer
    table: Buffer
    count: int
    times: int = 1

    def apply(self, memory: Mapping[Buffer, Words]) -> None:
        words = memory[self.to][: self.count]
        for _ in range(self.times):
            if self.kernel == STEP:
                words *= np.uint32(1664525)
                words += np.uint32(1013904223)
            elif self.kernel == KEEP:
                words[:] = memory[self.source][: self.count]
            elif self.kernel == MIX:
                source = memory[self.source][: self.count].copy()
                words *= np.uint32(3)
                words += source
            else:
                words += np.resize(memory[self.table].copy(), self.count)


Operation = Write | Fill | Copy | Launch


def pattern(seed: int, count: int) -> Words:
    """The same as in session_program.c."""
    places = np.arange(count, dtype=np.uint32) + np.uint32(seed)
    return places * np.uint32(2654435761)


@dataclass(slots=True)
class Memory:
    """All buffers of a session. Fresh ones are filled as a whole before anything else is done with them."""

    buffers: list[Buffer] = field(default_factory=list)
    _known: dict[Buffer, Words] = field(default_factory=dict)
    #: Allocated, and not written yet as far as is known for sure.
    _fresh: set[Buffer] = field(default_factory=set)
    _posted: list[Operation] = field(default_factory=list)
    #: As many of these have reached the worker for sure: they are executed whatever happens to the share.
    _submitted: int = 0
    #: The share was taken away while work was posted.
    in_doubt: bool = False

    def add(self, buffer: Buffer, *, zeroed: bool = False) -> None:
        self.buffers.append(buffer)
        self._known[buffer] = np.zeros(buffer.size, dtype=np.uint32)
        if not zeroed:
            self._fresh.add(buffer)

    def drop(self, buffer: Buffer) -> None:
        """Freed: what is posted on it still counts for others that copy from it."""
        self.buffers.remove(buffer)

    def post(self, operation: Operation) -> None:
        self._posted.append(operation)

    def submitted(self) -> None:
        """The worker has answered a later call."""
        self._submitted = len(self._posted)

    def confirm(self) -> None:
        """The program heard that everything is done."""
        self._apply(self._known, self._fresh, self._posted)
        self._forget_posted()
        self._forget_freed()

    def interrupt(self) -> None:
        """The share went away: what was posted may be missing, from some point on."""
        self.in_doubt = self.in_doubt or self._submitted < len(self._posted)

    def check(self, read: Mapping[Buffer, Words]) -> None:
        """Compares; `read` must be complete when work is in doubt. Raises BytesLost."""
        if not self.in_doubt:
            self.confirm()
            self._compare(self._known, self._fresh, read)
            return
        if set(read) != set(self.buffers):
            raise ValueError("work is in doubt, so everything must be read")
        nearest: BytesLost | None = None
        for number in range(len(self._posted), self._submitted - 1, -1):
            known = {buffer: words.copy() for buffer, words in self._known.items()}
            fresh = set(self._fresh)
            self._apply(known, fresh, self._posted[:number])
            try:
                self._compare(known, fresh, read)
            except BytesLost as difference:
                nearest = nearest or difference
                continue
            self._known, self._fresh = known, fresh
            self._forget_posted()
            self.in_doubt = False
            self._forget_freed()
            return
        raise BytesLost(
            f"no beginning of the {len(self._posted)} operations that were posted, {self._submitted} of them for sure, "
            f"gives what is there; with all of them: {nearest}"
        )

    @staticmethod
    def _apply(known: dict[Buffer, Words], fresh: set[Buffer], operations: list[Operation]) -> None:
        for operation in operations:
            operation.apply(known)
            if whole(operation, operation.to):
                fresh.discard(operation.to)
            elif any(source in fresh for source in sources(operation)):
                fresh.add(operation.to)

    @staticmethod
    def _compare(known: Mapping[Buffer, Words], fresh: set[Buffer], read: Mapping[Buffer, Words]) -> None:
        for buffer, words in read.items():
            if buffer in fresh:
                continue
            wanted = known[buffer]
            if np.array_equal(words, wanted):
                continue
            places = np.flatnonzero(words != wanted)
            raise BytesLost(
                f"{buffer.name} ({buffer.size} words at {buffer.address:#x}): {len(places)} words differ, the first at "
                f"{places[0]}: {words[places[0]]:#x} instead of {wanted[places[0]]:#x}"
            )

    def _forget_posted(self) -> None:
        self._posted.clear()
        self._submitted = 0

    def _forget_freed(self) -> None:
        alive = set(self.buffers)
        for buffer in [buffer for buffer in self._known if buffer not in alive]:
            del self._known[buffer]
            self._fresh.discard(buffer)


def sources(operation: Operation) -> tuple[Buffer, ...]:
    """Other buffers whose content goes into the result."""
    match operation:
        case Copy(source=source):
            return (source,)
        case Launch(kernel=kernel, source=source, table=table):
            return {MIX: (source,), KEEP: (source,), TABLE: (table,)}.get(kernel, ())
        case _:
            return ()


def whole(operation: Operation, buffer: Buffer) -> bool:
    """Whether it defines all of the buffer, whatever was in it."""
    return (
        isinstance(operation, Write | Fill)
        and operation.to is buffer
        and (operation.start, operation.count) == (0, buffer.size)
    )
