"""Graphs of cuDNN (cudnnBackend…) as a test builds them: descriptors with attributes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tests.libraries.convolution_reference import Geometry
from tests.libraries.cudnn import DATA_TYPES, call, done, strides_of
from tests.libraries.machine import Answer, Argument, Array, Machine, host, integer, out, pointer, wide

#: cudnnBackendDescriptorType_t.
POINTWISE, CONVOLUTION, ENGINE, ENGINE_CONFIG, HEURISTIC, PLAN = range(6)
FORWARD, BACKWARD_FILTER, BACKWARD_DATA, OPERATION_POINTWISE = 10, 11, 12, 13
GRAPH, VARIANT_PACK, TENSOR, MATMUL = 15, 16, 17, 19
#: cudnnBackendAttributeType_t with how its elements lie in memory.
HANDLE, DATA_TYPE, BOOLEAN, INT64, FLOAT, DOUBLE, POINTER, CONVOLUTION_MODE, HEURISTIC_MODE = range(9)
NUMERICAL_NOTE, POINTWISE_MODE, DESCRIPTOR = 11, 14, 15
LAYOUTS: Final = {
    HANDLE: "Q",
    BOOLEAN: "?",
    INT64: "q",
    FLOAT: "f",
    DOUBLE: "d",
    POINTER: "Q",
    DESCRIPTOR: "Q",
}
#: The attributes of each convolution: alpha, beta, descriptor; then input, filter, output.
CONVOLUTIONS: Final = {
    FORWARD: (700, (704, 703, 705)),
    BACKWARD_DATA: (706, (710, 709, 711)),
    BACKWARD_FILTER: (712, (716, 715, 717)),
}


@dataclass(slots=True)
class Graphs:
    """Descriptors on a machine, which end with the test."""

    machine: Machine
    handle: Argument
    stack: ExitStack = field(default_factory=ExitStack)

    def create(self, kind: int) -> int:
        made = done(self.machine, "cudnnBackendCreateDescriptor", integer(kind), out(8)).number()
        self.stack.callback(done, self.machine, "cudnnBackendDestroyDescriptor", pointer(made))
        return made

    def set(self, descriptor: int, name: int, kind: int, *values: float) -> int:
        content = struct.pack(f"<{len(values)}{LAYOUTS.get(kind, 'i')}", *values)
        return call(
            self.machine, "cudnnBackendSetAttribute", pointer(descriptor), integer(name), integer(kind),
            wide(len(values)), host(content),
        ).status  # fmt: skip

    def get(self, descriptor: int, name: int, kind: int, size: int, count: int = 1) -> Answer:
        return call(
            self.machine, "cudnnBackendGetAttribute", pointer(descriptor), integer(name), integer(kind), wide(count),
            out(8), out(max(size, 1)),
        )  # fmt: skip

    def fill(self, descriptor: int, name: int, *into: int) -> int:
        """Descriptors that are an attribute of another, and how many it has."""
        answer = call(
            self.machine, "cudnnBackendGetAttribute", pointer(descriptor), integer(name), integer(DESCRIPTOR),
            wide(len(into)), out(8), host(struct.pack(f"<{len(into)}Q", *into)) if into else pointer(0),
        )  # fmt: skip
        assert answer.status == 0
        return answer.number()

    def finalize(self, descriptor: int) -> int:
        return call(self.machine, "cudnnBackendFinalize", pointer(descriptor)).status

    def made(self, kind: int, *attributes: tuple[int, int, Sequence[float]]) -> int:
        """A finalised descriptor."""
        descriptor = self.unfinished(kind, *attributes)
        assert self.finalize(descriptor) == 0
        return descriptor

    def unfinished(self, kind: int, *attributes: tuple[int, int, Sequence[float]]) -> int:
        descriptor = self.create(kind)
        for name, of, values in attributes:
            assert self.set(descriptor, name, of, *values) == 0, f"attribute {name}"
        return descriptor

    def tensor(self, array: Array, form: int, number: int, *, virtual: bool = False) -> int:
        return self.made(
            TENSOR,
            (901, DATA_TYPE, [DATA_TYPES[array.dtype]]),
            (902, INT64, array.shape),
            (903, INT64, strides_of(array, form)),
            (906, INT64, [number]),
            (900, INT64, [16]),
            (907, BOOLEAN, [virtual]),
        )

    def convolution(self, of: Geometry, dtype: np.dtype[np.generic]) -> int:
        return self.made(
            CONVOLUTION,
            (100, DATA_TYPE, [1 if dtype == np.float64 else 0]),
            (101, CONVOLUTION_MODE, [0 if of.flipped else 1]),
            (106, INT64, [len(of.padding)]),
            (105, INT64, of.padding),
            (104, INT64, of.padding),
            (103, INT64, of.stride),
            (102, INT64, of.dilation),
        )

    def operation(
        self, kind: int, convolution: int, tensors: Sequence[int], alpha: float = 1, beta: float = 0
    ) -> int:
        """``tensors``: input, filter, output."""
        first, names = CONVOLUTIONS[kind]
        return self.made(
            kind,
            (first, FLOAT, [alpha]),
            (first + 1, FLOAT, [beta]),
            (first + 2, DESCRIPTOR, [convolution]),
            *((name, DESCRIPTOR, [tensor]) for name, tensor in zip(names, tensors, strict=True)),
        )

    def pointwise(self, mode: int, x: int, y: int, b: int | None = None, alpha2: float = 1) -> int:
        of = self.made(POINTWISE, (0, POINTWISE_MODE, [mode]), (1, DATA_TYPE, [0]))
        operands = [(752, DESCRIPTOR, [b]), (755, FLOAT, [alpha2])] if b is not None else []
        return self.made(
            OPERATION_POINTWISE,
            (750, DESCRIPTOR, [of]),
            (751, DESCRIPTOR, [x]),
            (753, DESCRIPTOR, [y]),
            *operands,
        )

    def unfinished_graph(self, *operations: int) -> int:
        return self.unfinished(GRAPH, (800, HANDLE, [self.handle[1]]), (801, DESCRIPTOR, operations))

    def configurations(self, graph: int, mode: int = 0) -> list[int]:
        """Of engines, as the heuristic names them."""
        heuristic = self.made(HEURISTIC, (201, DESCRIPTOR, [graph]), (200, HEURISTIC_MODE, [mode]))
        count = self.fill(heuristic, 202)
        made = [self.create(ENGINE_CONFIG) for _ in range(count)]
        assert self.fill(heuristic, 202, *made) == count
        return made

    def engine(self, configuration: int) -> int:
        made = self.create(ENGINE)
        assert self.fill(configuration, 300, made) == 1
        return made

    def notes(self, engine: int) -> list[int]:
        """The numerical ones."""
        answer = self.get(engine, 1303, NUMERICAL_NOTE, 40, 10)
        assert answer.status == 0
        return list(struct.unpack_from(f"<{answer.number()}i", answer.outputs[1]))

    def plan_of(self, configuration: int) -> int:
        return self.made(PLAN, (400, HANDLE, [self.handle[1]]), (401, DESCRIPTOR, [configuration]))

    def plan(self, graph: int) -> int:
        """As a program makes it: by the first configuration that the heuristic names."""
        return self.plan_of(self.configurations(graph)[0])

    def pack(self, addresses: dict[int, int]) -> int:
        """A variant pack: the addresses of tensors by their numbers."""
        return self.made(
            VARIANT_PACK,
            (1001, POINTER, list(addresses.values())),
            (1000, INT64, list(addresses)),
            (1003, POINTER, [0]),
        )

    def execute(self, plan: int, addresses: dict[int, int]) -> int:
        pack = pointer(self.pack(addresses))
        return call(self.machine, "cudnnBackendExecute", self.handle, pointer(plan), pack).status
