"""What an embedded pool is made of; given by whoever starts it, the next ones find it as it is."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """How the pool and its node are started.

    Attributes:
        driver: as of ``gpupool node start``: auto takes NVIDIA's GPUs where there are some.
        software_gpus: how many there are where there is no other.
        memory_mib: of each of them.
        quotas: ``user=GPUs``, as of ``gpupool pool serve``.
        notice_seconds: between the word that a share is taken back and its end; None: the pool's default.
        restarts: a pool or node that dies is started again.
        providers: a file of engines that lend nodes, see `gpupool.providers.settings`; then none of this machine's GPUs
            is lent. Empty: there is none.
        listen: ``host:port`` at which these nodes reach the pool; empty: they are on this machine.
        port_range: TCP ports of this machine's workers, as of ``gpupool node start``; empty: the system picks them.
    """

    driver: str = "auto"
    software_gpus: int = 2
    memory_mib: int = 8192
    quotas: tuple[str, ...] = ()
    notice_seconds: float | None = None
    restarts: bool = True
    providers: str = ""
    listen: str = ""
    port_range: str = ""

    def pool_words(self) -> list[str]:
        """Arguments of ``gpupool pool serve``."""
        words = [word for quota in self.quotas for word in ("--quota", quota)]
        if self.notice_seconds is not None:
            words += ["--notice", f"{self.notice_seconds:.3f}s"]
        if self.providers:
            # Nobody uses them when this pool has ended.
            words += ["--providers", self.providers, "--return-nodes"]
        if self.listen:
            words += ["--listen", self.listen, "--tls-self-signed"]
        return words

    def node_words(self) -> list[str]:
        """Arguments of ``gpupool node start``."""
        software = ("--software-gpus", str(self.software_gpus), "--memory-mib", str(self.memory_mib))
        return [
            *("--driver", self.driver),
            *(() if self.driver == "nvidia" else software),
            *(("--port-range", self.port_range) if self.port_range else ()),
            # One machine, one user: usage may be as live as the sidebar shows it.
            *("--heartbeat-seconds", "1"),
            "--allow-host-access",  # the user of the worker whose memory that is
        ]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> EmbeddedOptions:
        said: dict[str, Any] = json.loads(text)
        return cls(**{**said, "quotas": tuple(said["quotas"])})
