"""Machines that lend devices, and the devices. Records are frozen; a change is a new record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpupool.scheduler.model import DEFAULT_NODE_POOL

LEAVING: Final = "its agent is ending"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A machine that lends devices.

    Attributes:
        connection: the live stream's number; None: not connected. Not stored.
        last_answered: when its last heartbeat was answered. Not stored; the time of a restart
            stands for it, which can only keep shares longer.
        lost: nothing was heard for `Timers.reuse`; all its leases have ended.
        park_memory_mib: host memory that parked sessions may take. Not stored, like the next two.
        park_disk_mib: disk that session images may take.
        worker_ports: how many ports its workers may listen on, one each; 0: not limited.
        pool: the node pool it belongs to.
        labels: what its administrator says of it.
        sharing: what may be placed on its devices, see `scheduler.model.SHARING`.
        drained: takes no new leases, because an administrator said so; `drain_reason` why.
        given_back: what it ran on was borrowed and has gone back, so nobody waits for it. Not stored: it is said again.
        leaves_at: when its agent ends, boot-time clock; None: it stays. Not stored: the agent says it again.
    """

    name: str
    instance: str = ""
    advertise_host: str = ""
    connection: int | None = None
    last_answered: float = 0.0
    lost: bool = False
    park_memory_mib: int = 0
    park_disk_mib: int = 0
    worker_ports: int = 0
    pool: str = DEFAULT_NODE_POOL
    labels: tuple[tuple[str, str], ...] = ()
    sharing: str = "isolated"
    drained: bool = False
    drain_reason: str = ""
    leaves_at: float | None = None
    given_back: bool = False

    @property
    def closed(self) -> bool:
        """Whether it takes no new leases though it serves those that it has."""
        return self.drained or self.leaves_at is not None

    @property
    def closed_because(self) -> str:
        """Why, as people read it; empty: nobody gave a reason."""
        return self.drain_reason if self.drained or self.leaves_at is None else LEAVING


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """A device as its node described it.

    `present`: in the node's latest hello. `driver`: its version, empty when the node does not say. `shrunk`: it has less memory
    than what is held of it was cut from, and is ill until that is given back. Not stored: the next hello says it again.
    """

    id: str
    node: str
    ordinal: int
    name: str
    uuid: str
    software: bool
    total_mib: int
    profile: str
    healthy: bool = True
    health_reason: str = ""
    present: bool = True
    driver: str = ""
    shrunk: bool = False


def node_of_device(device_id: str) -> str:
    """The node in a device's id, ``<node>/<ordinal>``."""
    return device_id.rpartition("/")[0]
