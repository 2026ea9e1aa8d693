"""One session as a test sees it: the program that uses it, its session file, and the model of its memory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpupool.client.session_file import SessionFile, share_text
from gpupool.client.types import Grant

from tests.support.cut_wire import CutWire
from tests.support.session_memory import (
    KEEP,
    MIX,
    STEP,
    TABLE,
    TABLE_WORDS,
    Buffer,
    Copy,
    Fill,
    Launch,
    Memory,
    Operation,
    Words,
    Write,
)
from tests.support.session_program import Answer, SessionProgram

#: CUresult of a call that needs a share and has none.
UNAVAILABLE: Final = 46
OUT_OF_MEMORY: Final = 2
STREAMS: Final = 3
MODULES: Final = 4
#: Words of a buffer: below, at and above a page, and (rarely) above the granule of device memory.
SIZES: Final = (1, 63, 256, 1024, 5000, 16384)
LARGE: Final = 1 << 20


class Refused(Exception):
    """A call of the program failed; the first such answer."""

    def __init__(self, command: str, answer: Answer) -> None:
        super().__init__(f"{command!r} failed with {answer.error}: {answer.text}")
        self.command = command
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Step:
    """Something for the program to do; numbers pick among what there is."""

    kind: str
    one: int = 0
    two: int = 0
    number: int = 0


STEPS: Final = ("write", "fill", "copy", "step", "mix", "table", "keep", "graph", "part", "read", "sync")


@dataclass(eq=False, slots=True)
class DeviceSession:
    """`attached`: what the model says; the program may not have noticed yet that this has changed."""

    name: str
    program: SessionProgram
    file: SessionFile
    log: Path
    grant: Grant
    milli: int
    attached: bool = True
    #: Why it is parked, as its session file says.
    why: str = ""
    #: The program has not been told that its share is gone, and still tries.
    unaware: bool = False
    #: Between the program and its worker; None: the shortest way.
    wire: CutWire | None = None
    #: It does nothing that would bind it to its node.
    movable: bool = False
    memory: Memory = field(default_factory=Memory)
    #: Where variables are copied to whose address is not known; no part of the model.
    scratch: int = 0
    #: A kernel runs, or stands still, that ends when this program says so.
    endless: bool = False
    tables: dict[int, Buffer] = field(default_factory=dict)
    stream: int = 0
    #: Every epoch that it was ever given, with the compute share.
    epochs: dict[int, int] = field(default_factory=dict)
    made: int = 0

    @property
    def id(self) -> str:
        return self.grant.session_id

    @property
    def device(self) -> str:
        return self.grant.shares[0].device_id

    @property
    def node(self) -> str:
        return self.device.partition("/")[0]

    @property
    def mib(self) -> int:
        return self.grant.shares[0].mib

    # ---- the session file, as the holder of the lease writes it

    def write_attached(self) -> None:
        grant = self.grant
        address = self.wire.address(grant.worker_address) if self.wire else grant.worker_address
        self.file.write(
            "attached", session=grant.session_id, epoch=grant.epoch, address=address,
            token=grant.worker_token, software=grant.software, log=str(self.log), share=share_text(grant.shares),
        )  # fmt: skip

    def write_parked(self, why: str) -> None:
        self.why = why
        self.file.write("parked", session=self.id, message=why, software=True, log=str(self.log))

    def end(self, *, killed: bool = False) -> None:
        """Ends the program."""
        if killed:
            self.program.kill()
        else:
            self.program.end()
        if self.wire is not None:
            self.wire.close()

    # ---- what its program does

    def start(self) -> None:
        """Context, streams, one module; the table of the module gets a content."""
        self._must(self.program.run("start"), "start")
        self.scratch = self._must(self.program.run(f"alloc {TABLE_WORDS}"), "alloc").value
        self.load(0, 12345)

    def load(self, number: int, seed: int) -> None:
        """Loads the module as number `number` (again)."""
        command = f"load {number} {int(not self.movable)}"
        answer = self._must(self.program.run(command), command)
        if not self.movable:  # its address was asked for, and was answered
            self.memory.submitted()
        self.made += 1
        name = f"{self.name}: table {self.made}"
        table = Buffer(answer.value, TABLE_WORDS, name, table=True, hidden=self.movable)
        self.memory.add(table, zeroed=self.movable)
        self.tables[number] = table
        if not self.movable:
            self._carry_out([Write(table, 0, TABLE_WORDS, seed)])

    def unload(self, number: int) -> None:
        """After waiting: a module goes with the work that uses it."""
        self.check([])
        command = f"unload {number}"
        self._must(self.program.run(command), command)
        self.memory.drop(self.tables.pop(number))

    def allocate(self, size: int, seed: int, *, pool: bool = False) -> Buffer:
        command = f"poolalloc {self.stream} {size}" if pool else f"alloc {size}"
        answer = self._must(self.program.run(command), command)
        self.made += 1
        buffer = Buffer(answer.value, size, f"{self.name}: buffer {self.made}", pooled=pool)
        self.memory.add(buffer)
        self._carry_out([Write(buffer, 0, size, seed) if size < LARGE else Fill(buffer, 0, size, seed)])
        return buffer

    def free(self, buffer: Buffer) -> None:
        command = f"poolfree {self.stream} {buffer.address}" if buffer.pooled else f"free {buffer.address}"
        self._must(self.program.run(command), command)
        self.memory.drop(buffer)

    def freeable(self) -> list[Buffer]:
        return [buffer for buffer in self.memory.buffers if not buffer.table]

    def work(self, steps: Sequence[Step]) -> None:
        """Does them; raises Refused when one fails, BytesLost when something read is wrong."""
        for step in steps:
            if step.kind == "read":
                self.check([self._pick(step.one)])
            elif step.kind == "sync":
                self.check([])
            else:
                self._carry_out(self._operations(step), stream=step.number % STREAMS)

    def check(self, buffers: Sequence[Buffer]) -> None:
        """Waits until everything is done and compares `buffers`."""
        commands, places = ["sync"], []
        for buffer in buffers:
            commands += self._reading(buffer)
            places.append(len(commands) - 1)
        answers = self.program.batch(commands)
        for command, answer in zip(commands, answers, strict=True):
            self._must(answer, command)
        read: dict[Buffer, Words] = {}
        for buffer, place in zip(buffers, places, strict=True):
            words = answers[place].words
            assert words is not None
            read[buffer] = words
        self.memory.check(read)

    def check_all(self) -> None:
        self.check(list(self.memory.buffers))

    def launch_endless(self) -> None:
        """A kernel that runs until :meth:`resumed`; everything else is done, and nothing is under way but this."""
        self.check([])
        for command in (f"fill {self.stream} {self.scratch} 0 1", "sync", f"endless {self.scratch}"):
            self._must(self.program.run(command), command)
        self.endless = True

    def interrupted(self) -> None:
        """The share is gone. What was on its way is executed now or under the next one."""
        self.attached, self.unaware = False, True
        self.memory.interrupt()

    def resumed(self) -> None:
        """The first calls under a new lease: no post was refused meanwhile, and all bytes are right."""
        if self.endless:  # its program has noticed that the lease had ended
            for command in ("detach", f"finish {self.scratch}"):
                self._must(self.program.run(command), command)
            self.endless = False
        answer = self.program.run("sync")
        if answer.error:
            raise Refused("sync", answer)
        self.check_all()

    def try_in_vain(self, steps: Sequence[Step]) -> None:
        """Works without a share: whoever waits is told why, and what the worker took is executed under the next one."""
        operations = [operation for step in steps for operation in self._operations(step)]
        commands = [command for operation in operations for command in self._commands(operation)]
        commands.append("sync")
        answers = self.program.batch(commands)
        for operation, answer in zip(operations, answers, strict=False):
            if not answer.error:
                self.memory.post(operation)
                self.memory.in_doubt = True
        for command, answer in zip(commands, answers, strict=True):
            expected = (0, UNAVAILABLE) if self.unaware and command != "sync" else (UNAVAILABLE,)
            if answer.error not in expected:
                raise AssertionError(f"{self.name} has no share, and {command!r} gave {answer}")
            if answer.error:
                self.unaware = False
        said = answers[-1].text
        if not said or (self.why and self.why not in said):
            raise AssertionError(f"{self.name} has no share ({self.why}), and was told {said!r}")

    # ---- one operation, for the program and for the model

    def _carry_out(self, operations: Sequence[Operation], stream: int | None = None) -> None:
        commands: list[str] = []
        if stream is not None and stream != self.stream:
            commands.append(f"chain {self.stream} {stream}")
            self.stream = stream
        for operation in operations:
            commands += self._commands(operation)
        for operation in operations:
            self.memory.post(operation)
        for command, answer in zip(commands, self.program.batch(commands), strict=True):
            self._must(answer, command)

    def _commands(self, operation: Operation) -> list[str]:
        to = operation.to.address
        match operation:
            case Write(start=start, count=count, seed=seed):
                return [f"write {self.stream} {to + 4 * start} {seed} {count}"]
            case Fill(start=start, count=count, value=value):
                return [f"fill {self.stream} {to + 4 * start} {value} {count}"]
            case Copy(start=start, count=count, source=source, source_start=source_start):
                return [f"copy {self.stream} {to + 4 * start} {source.address + 4 * source_start} {count}"]
            case Launch(kernel=kernel, source=source, count=count, times=times):
                module = next(number for number, table in self.tables.items() if table is operation.table)
                what = f"{self.stream} {kernel} {module} {to} {source.address} {count}"
                return [f"launch {what}" if times == 1 else f"graph {what} {times}"]

    def _reading(self, buffer: Buffer) -> list[str]:
        if not buffer.hidden:
            return [f"read {self.stream} {buffer.address} {buffer.size}"]
        module = next(number for number, table in self.tables.items() if table is buffer)
        return [
            f"fill {self.stream} {self.scratch} 0 {buffer.size}",
            f"launch {self.stream} {TABLE} {module} {self.scratch} {self.scratch} {buffer.size}",
            f"read {self.stream} {self.scratch} {buffer.size}",
        ]

    def _operations(self, step: Step) -> list[Operation]:
        to, source = self._pick(step.one), self._pick(step.two)
        choice = random.Random(step.number)
        value = choice.randrange(1 << 32)
        module = sorted(self.tables)[choice.randrange(len(self.tables))]
        table = self.tables[module]
        count = min(to.size, source.size)
        match step.kind:
            case "write":
                return [Write(to, 0, to.size, value)]
            case "fill":
                return [Fill(to, 0, to.size, value)]
            case "part":
                start = choice.randrange(to.size)
                length = choice.randrange(1, to.size - start + 1)
                return [choice.choice((Write, Fill))(to, start, length, value)]
            case "copy" if to is not source:
                start, source_start = choice.randrange(to.size), choice.randrange(source.size)
                return [
                    Copy(to, start, source, source_start, min(to.size - start, source.size - source_start))
                ]
            case "mix" if to is not source:
                return [Launch(MIX, to, source, table, count)]
            case "table" if to is not table:
                return [Launch(TABLE, to, to, table, to.size)]
            case "keep":
                return [Launch(KEEP, table, to, table, min(to.size, TABLE_WORDS))]
            case "graph":
                return [Launch(STEP, to, to, table, to.size, choice.randrange(2, 5))]
            case _:
                return [Launch(STEP, to, to, table, to.size)]

    def _pick(self, number: int) -> Buffer:
        known = [buffer for buffer in self.memory.buffers if not buffer.hidden]
        return known[number % len(known)]

    def _must(self, answer: Answer, command: str) -> Answer:
        if answer.error:
            raise Refused(command, answer)
        return answer
