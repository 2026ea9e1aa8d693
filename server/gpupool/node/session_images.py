"""Sessions that lie on this node's disk: one folder each, which counts only when it is complete.

A folder is written under another name and renamed at the end, so that a crash at any moment leaves a whole image
or one that is removed at the next start.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

from gpupool.client.endpoint import private_directory

_SESSION: Final = re.compile(r"[0-9a-f]{1,64}", re.ASCII)
_UNFINISHED: Final = ".part"


class SessionImages:
    """The images of one node, under ``root`` (mode 0700): they hold what users computed."""

    def __init__(self, root: Path) -> None:
        self._root = private_directory(root)
        for folder in self._root.iterdir():
            if not _SESSION.fullmatch(folder.name):
                shutil.rmtree(folder, ignore_errors=True)

    def sessions(self) -> frozenset[str]:
        """Those that have a whole image."""
        return frozenset(folder.name for folder in self._root.iterdir() if _SESSION.fullmatch(folder.name))

    def folder(self, session: str) -> Path | None:
        """The whole image of a session; None: there is none."""
        folder = self._path(session)
        return folder if folder.is_dir() else None

    def begin(self, session: str) -> Path:
        """An empty folder to write an image into."""
        folder = self._path(session).with_suffix(_UNFINISHED)
        shutil.rmtree(folder, ignore_errors=True)
        return private_directory(folder)

    def finish(self, session: str) -> None:
        """What was begun is whole and on disk now."""
        folder, unfinished = self._path(session), self._path(session).with_suffix(_UNFINISHED)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
        root = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(root)
        finally:
            os.close(root)

    def remove(self, session: str) -> None:
        """Drops an image, whole or not; none is no error."""
        folder = self._path(session)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(folder.with_suffix(_UNFINISHED), ignore_errors=True)

    def _path(self, session: str) -> Path:
        if not _SESSION.fullmatch(session):
            raise ValueError(f"{session[:80]!r} is no session")
        return self._root / session
