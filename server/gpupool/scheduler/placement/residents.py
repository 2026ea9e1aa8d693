"""The shares that may be moved: parts of one device, with where each lies, in columns so that a search reads all at once."""

from __future__ import annotations

import numpy as np

from gpupool.scheduler.placement.cluster import Cluster, Integers
from gpupool.scheduler.placement.model import Demand, Placement
from gpupool.scheduler.placement.policy import Mask
from gpupool.shares import WHOLE_DEVICE_MILLI

_NODE, _DEVICE, _MILLI, _MIB, _CPU, _MEMORY, _SHAPE, _HERE = range(8)


class Residents:
    """Numbered placements; the numbers of those that left are used again."""

    def __init__(self) -> None:
        self._placements: list[Placement | None] = []
        self._gone: list[int] = []
        self._columns: Integers = np.zeros((8, 256), np.int64)
        #: The distinct demands, by the number that stands for them.
        self.shapes: list[Demand] = []
        self._shape_numbers: dict[Demand, int] = {}
        self._among: dict[int, Mask] = {}

    def __getitem__(self, number: int) -> Placement:
        placement = self._placements[number]
        if placement is None:
            raise KeyError(number)
        return placement

    def __len__(self) -> int:
        return len(self._placements) - len(self._gone)

    def add(self, placement: Placement, among: Mask | None = None) -> int | None:
        """Its number; None: whole devices and shares of several devices are not moved.

        Args:
            placement: what lies where.
            among: per node, whether it may go there; None: anywhere.
        """
        if len(placement.devices) != 1 or placement.shares[0][0] >= WHOLE_DEVICE_MILLI:
            return None
        if self._gone:
            number = self._gone.pop()
        else:
            number = len(self._placements)
            self._placements.append(None)
            if number == self._columns.shape[1]:
                self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        self._write(number, placement)
        if among is not None:
            self._among[number] = among
        return number

    def among(self, number: int) -> Mask | None:
        """Per node, whether it may go there; None: anywhere."""
        return self._among.get(number)

    def replace(self, number: int, placement: Placement) -> None:
        """It lies somewhere else now."""
        self[number]
        self._write(number, placement)

    def remove(self, number: int) -> None:
        self[number]
        self._placements[number] = None
        self._gone.append(number)
        self._columns[_HERE, number] = 0
        self._among.pop(number, None)

    def whose_leaving_helps(
        self, cluster: Cluster, need: tuple[Integers, Integers], cpu: int, memory: int
    ) -> Integers:
        """Numbers of those who could be of use: their node would have the CPU and memory, and some device room for them.

        Args:
            cluster: where they lie.
            need: per kind of device, milli and MiB of what is to be placed.
            cpu: milli-CPU that is needed; 0: none.
            memory: MiB of host memory that are needed; 0: none.
        """
        columns = self._columns[:, : len(self._placements)]
        node, device = columns[_NODE], columns[_DEVICE]
        useful = columns[_HERE] == 1
        useful &= columns[_MILLI] <= cluster.free_milli.max(initial=0)
        useful &= need[0][cluster.kind[node, device]] <= WHOLE_DEVICE_MILLI
        useful &= cluster.free_cpu[node] + columns[_CPU] >= cpu
        useful &= cluster.free_memory[node] + columns[_MEMORY] >= memory
        return np.flatnonzero(useful)

    def left_without(
        self, cluster: Cluster, numbers: Integers, need: tuple[Integers, Integers]
    ) -> tuple[Integers, Integers]:
        """Milli and MiB left on the device of each if it left and what is to be placed came; negative: no room."""
        columns = self._columns[:, numbers]
        node, device = columns[_NODE], columns[_DEVICE]
        kind = cluster.kind[node, device]
        milli = cluster.free_milli[node, device] + columns[_MILLI] - need[0][kind]
        return milli, cluster.free_mib[node, device] + columns[_MIB] - need[1][kind]

    def shapes_of(self, numbers: Integers) -> Integers:
        """Of each, the index of its demand in ``shapes``."""
        shapes: Integers = self._columns[_SHAPE, numbers]
        return shapes

    def nodes_of(self, numbers: Integers) -> Integers:
        nodes: Integers = self._columns[_NODE, numbers]
        return nodes

    def devices_of(self, numbers: Integers) -> Integers:
        """Of each, a number that those on one device have in common."""
        devices: Integers = self._columns[_NODE, numbers] * 1024 + self._columns[_DEVICE, numbers]
        return devices

    def sizes(self, numbers: Integers) -> tuple[Integers, Integers]:
        """Milli and MiB of each."""
        return self._columns[_MILLI, numbers], self._columns[_MIB, numbers]

    def _write(self, number: int, placement: Placement) -> None:
        demand = placement.demand
        milli, mib = placement.shares[0]
        shape = self._shape_numbers.setdefault(demand, len(self.shapes))
        if shape == len(self.shapes):
            self.shapes.append(demand)
        row = (
            placement.node,
            placement.devices[0],
            milli,
            mib,
            demand.cpu_milli,
            demand.memory_mib,
            shape,
            1,
        )
        self._columns[:, number] = row
        self._placements[number] = placement
