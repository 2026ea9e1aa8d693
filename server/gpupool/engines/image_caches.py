"""Folders in which workers keep module images: one per user, so that no user can learn of or touch another's.

A worker looks after its user's folder while it runs (``src/worker/objects/image_cache.h``); what all users together
take is looked at here, before a worker is started.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

import structlog

from gpupool.client.endpoint import private_directory
from gpupool.client.errors import DirectoryUnusableError

#: What one user's images may take on a node.
DEFAULT_USER_MIB: Final = 4096
#: All users together may take this many times as much.
_USERS: Final = 4

logger = structlog.get_logger(__name__)


class ImageCaches:
    """The image caches of one node, under ``root``."""

    def __init__(self, root: Path, user_mib: int, total_mib: int | None = None) -> None:
        self._root = root
        self._user_mib = user_mib
        self._total_mib = _USERS * user_mib if total_mib is None else total_mib

    def folder(self, user: str) -> Path:
        """The folder of ``user``, whose name may hold anything.

        Raises:
            DirectoryUnusableError: it cannot be made, or is not this process's own.
        """
        private_directory(self._root)
        name = hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return private_directory(self._root / name)

    def start_record(self, user: str) -> bytes:
        """The lines of a worker's start record that name the cache; none when the pool did not say whose it is."""
        if not user:
            return b""
        try:
            folder = os.fsencode(self.folder(user).absolute())
            os.utime(folder)
            self.trim(keep=user)
        except (DirectoryUnusableError, OSError) as error:
            logger.warning("a session has no image cache", reason=str(error))
            return b""
        if b"\n" in folder or b"\0" in folder:
            return b""
        return b"image_cache %s\nimage_cache_mib %d\n" % (folder, self._user_mib)

    def trim(self, keep: str = "") -> None:
        """Removes whole folders, least recently used first, until all users together fit.

        A worker that runs and loses its folder stores nothing more and sends images as if it had none.
        """
        kept = self.folder(keep) if keep else None
        folders = []
        for folder in self._root.iterdir():
            with contextlib.suppress(OSError):
                folders.append((folder.stat().st_mtime, _size(folder), folder))
        total = sum(size for _, size, _ in folders)
        for _, size, folder in sorted(folders, key=lambda item: item[0]):
            if total <= self._total_mib << 20:
                break
            if folder != kept:
                shutil.rmtree(folder, ignore_errors=True)
                total -= size


def _size(folder: Path) -> int:
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_size
    return total
