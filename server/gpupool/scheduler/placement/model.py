"""What placement reads and answers. All quantities are integers: milli-GPU, MiB, milli-CPU."""

from __future__ import annotations

from dataclasses import dataclass

from gpupool.shares import WHOLE_DEVICE_MILLI, milli_of_mib


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device as it is when nothing is placed on it.

    Attributes:
        model: what demands may name.
        usable_mib: MiB that shares are cut from; 0: memory is not counted, only milli.
    """

    model: str = ""
    usable_mib: int = 0


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as it is when nothing is placed on it.

    Attributes:
        id: its name; where policies see no difference, the lower one wins.
        cpu_milli: milli-CPU that demands are to find; None: not looked at.
        memory_mib: host memory that demands are to find; None: not looked at.
    """

    id: str
    devices: tuple[DeviceSpec, ...]
    cpu_milli: int | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """A wish for ``count`` even shares on distinct devices of one node; equal demands have one shape.

    Attributes:
        milli: of each device, 1..1000; 0 when the share is named by ``mib``.
        mib: of each device; 0 when the share is named by ``milli``: it is derived.
        count: devices; 0: none, only room on the node (``milli`` and ``mib`` are 0 then).
        cpu_milli: of the node.
        memory_mib: of the node.
        models: device models that will do; empty: all.
    """

    milli: int = 0
    mib: int = 0
    count: int = 1
    cpu_milli: int = 0
    memory_mib: int = 0
    models: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.count < 0 or self.cpu_milli < 0 or self.memory_mib < 0 or self.mib < 0:
            raise ValueError(f"negative quantity in {self}")
        if self.count == 0 and (self.milli or self.mib):
            raise ValueError("a demand without devices names no share")
        if self.count and (self.milli > 0) == (self.mib > 0):
            raise ValueError("a demand names either milli or mib of a device, not both and not neither")
        if not 0 <= self.milli <= WHOLE_DEVICE_MILLI:
            raise ValueError(f"{self.milli} milli-GPU is not within 1..{WHOLE_DEVICE_MILLI}")

    @property
    def total_milli(self) -> int:
        """Milli-GPU of all devices; 0 when the share is named by memory."""
        return self.milli * self.count

    def on(self, device: DeviceSpec) -> tuple[int, int] | None:
        """(milli, MiB) of one share on such a device; None when it cannot lie there even if it is empty."""
        if self.models and device.model not in self.models:
            return None
        if self.milli:
            mib = self.milli * device.usable_mib // WHOLE_DEVICE_MILLI
            return None if device.usable_mib and mib < 1 else (self.milli, mib)
        if not 0 < self.mib <= device.usable_mib:
            return None
        return milli_of_mib(self.mib, device.usable_mib), self.mib


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a demand goes.

    Attributes:
        node: index of the node in its cluster.
        devices: ordinals in that node, ascending.
        shares: (milli, MiB) on each of them, in this order.
    """

    demand: Demand
    node: int
    devices: tuple[int, ...]
    shares: tuple[tuple[int, int], ...]
