"""What the local engine stores about one worker, so that a restarted agent finds it again.

One file ``state.json`` per worker in its run directory, replaced atomically and synced to
disk before each step that it announces. It holds no secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from gpupool.client.session_file import write_private
from gpupool.engines.records import WORKER_PROTOCOL, DeviceGrant

FILE_NAME: Final = "state.json"
_MAX_BYTES: Final = 64 * 1024
_SESSION = re.compile(r"[0-9a-f]{1,64}", re.ASCII)


class StateFileError(ValueError):
    """The file is not a worker's state."""


@dataclass(frozen=True, slots=True)
class StoredWorker:
    """``phase``: ``starting`` (pid 0 until spawned), ``running`` or ``ended``.

    ``protocol``: what its worker speaks; the program and the agent that starts it are of one installation. 0: not noted.
    """

    session: str
    epoch: int
    phase: str
    devices: tuple[DeviceGrant, ...]
    boot_id: str
    pid: int = 0
    start_ticks: int = 0
    address: str = ""
    exit_status: int | None = None
    reason: str = ""
    protocol: int = WORKER_PROTOCOL

    def write(self, directory: Path) -> None:
        """Stores this state durably."""
        write_private(directory / FILE_NAME, json.dumps(asdict(self)).encode(), sync=True)

    @classmethod
    def read(cls, directory: Path) -> StoredWorker:
        """Raises StateFileError when the file is missing, cut or not a state."""
        try:
            with (directory / FILE_NAME).open("rb") as file:
                raw = file.read(_MAX_BYTES + 1)
            if len(raw) > _MAX_BYTES:
                raise StateFileError("too large")
            return cls._from_json(json.loads(raw))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise StateFileError(f"{directory / FILE_NAME} is no worker's state: {error}") from error

    @classmethod
    def _from_json(cls, value: Mapping[str, Any]) -> StoredWorker:
        stored = cls(
            session=str(value["session"]),
            epoch=int(value["epoch"]),
            phase=str(value["phase"]),
            devices=tuple(
                DeviceGrant(int(d["ordinal"]), str(d["uuid"]), int(d["milli"]), int(d["mib"]))
                for d in value["devices"]
            ),
            boot_id=str(value["boot_id"]),
            pid=int(value["pid"]),
            start_ticks=int(value["start_ticks"]),
            address=str(value["address"]),
            exit_status=None if value["exit_status"] is None else int(value["exit_status"]),
            reason=str(value["reason"]),
            protocol=int(value.get("protocol", 0)),
        )
        if stored.phase not in ("starting", "running", "ended") or not _SESSION.fullmatch(stored.session):
            raise StateFileError("unknown phase or session")
        return stored
