"""What a keeper tells those who hold a lifeline: one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Final

#: A line may have so many bytes; 64 devices with long names take a tenth of it.
MOST_BYTES: Final = 64 * 1024
#: What the holder of a lifeline says when it leaves and wants to know what becomes of the pool.
LEAVE: Final = b"leave\n"

STARTING: Final = "starting"
READY: Final = "ready"
RESTARTED: Final = "restarted"
DIED: Final = "died"
FAILED: Final = "failed"
STAYS: Final = "stays"
ENDED: Final = "ended"


class BadMessageError(ValueError):
    """Bytes that no keeper of this version says."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device that the pool lends."""

    name: str
    software: bool
    mib: int


@dataclass(frozen=True, slots=True)
class Told:
    """One message.

    Attributes:
        state: ``starting``, ``ready``, ``restarted`` (a service has died), ``died`` (it is not started again),
            ``failed``, ``stays`` (for others, after :data:`LEAVE`) or ``ended``.
        text: what is started, which service died, or why it failed.
        endpoint: of the pool.
        gpus: what the pool lends.
        providers: engines that lend it nodes when somebody needs them.
        pids: of its services, by their name.
        users: how many others hold a lifeline.
    """

    state: str
    text: str = ""
    endpoint: str = ""
    gpus: tuple[Gpu, ...] = ()
    providers: tuple[str, ...] = ()
    pids: dict[str, int] = field(default_factory=dict)
    users: int = 0

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> Told:
        """Raises BadMessageError."""
        try:
            said: dict[str, Any] = json.loads(line)
            gpus = tuple(Gpu(str(g["name"]), bool(g["software"]), int(g["mib"])) for g in said["gpus"])
            pids = {str(name): int(pid) for name, pid in said["pids"].items()}
            providers = tuple(str(name) for name in said["providers"])
            state, text, endpoint = (str(said[name]) for name in ("state", "text", "endpoint"))
            return cls(state, text, endpoint, gpus, providers, pids, int(said["users"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadMessageError(f"no message of a keeper: {line[:80]!r}") from error
