"""The files in which the workers of one device keep whose turn it is: one per device, named by its UUID.

The workers fill them (``src/enforcer/turn_file.h``). They are never removed while the node runs: workers of an earlier
agent may still be using them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import structlog

from gpupool.client.endpoint import private_directory
from gpupool.client.errors import DirectoryUnusableError
from gpupool.engines.records import DeviceGrant

logger = structlog.get_logger(__name__)


class TurnBooks:
    """The books of turns of one node's devices, in the folder ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def make(self, uuids: Iterable[str]) -> None:
        """Makes those that are not there yet: a session may be resumed onto any device of the node.

        Raises:
            DirectoryUnusableError, OSError: they cannot be made.
        """
        private_directory(self._root)
        for uuid in uuids:
            os.close(os.open(self._path(uuid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))

    def start_record(self, devices: Iterable[DeviceGrant]) -> bytes:
        """The lines of a worker's start record that name the books of its devices; none when there can be none."""
        devices = tuple(devices)
        try:
            self.make(device.uuid for device in devices)
            lines = [
                b"enforcer %d %s\n" % (device.ordinal, os.fsencode(self._path(device.uuid)))
                for device in devices
            ]
        except (DirectoryUnusableError, OSError) as error:
            logger.warning("the device time of a session is not enforced", reason=str(error))
            return b""
        text = b"".join(lines)
        # A path may hold anything; a line may not.
        return text if text.count(b"\n") == len(devices) and b"\0" not in text else b""

    def _path(self, uuid: str) -> Path:
        return (self._root / uuid.lower()).absolute()
