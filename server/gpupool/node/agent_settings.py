"""What a node agent is told at its start, and how it says that it cannot run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpupool.node.session_images import SessionImages

#: Between two heartbeats: one may be lost before the pool takes the node for silent.
MOST_HEARTBEAT: Final = 7.5


class AgentError(Exception):
    """The agent cannot run; ``str()`` is one sentence for people."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is told.

    Attributes:
        stop_grace_seconds: between asking a worker to stop and terminating it.
        drain_wait: seconds that sessions have at the end to move to other nodes, or to this node's disk.
        leave_after: the agent ends if the pool has not answered for so many seconds; None: it tries for ever.
        park_memory_mib: host memory that parked sessions may take.
        park_disk_mib: disk that their images may take; 0: none are written.
        worker_ports: how many ports its workers may listen on, one each; 0: not limited.
        images: where they are kept.
        node_pool: that this node belongs to.
        sharing: what may be placed on its devices: ``isolated``, ``whole`` or ``open``.
        labels: what its administrator says of it; asks filter by them.
    """

    node: str
    endpoint: str | None = None
    token_file: Path | None = None
    advertise_host: str = "127.0.0.1"
    heartbeat_seconds: float = 5.0
    stop_grace_seconds: float = 5.0
    answer_seconds: float = 5.0
    leave_workers: bool = False
    drain_wait: float = 0.0
    leave_after: float | None = None
    park_memory_mib: int = 0
    park_disk_mib: int = 0
    worker_ports: int = 0
    images: SessionImages | None = None
    node_pool: str = "default"
    sharing: str = "isolated"
    labels: Mapping[str, str] = field(default_factory=dict)
