"""The latest lines of the agent's log, kept in memory for an administrator who asks from afar."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpupool.text import printable

KEPT_LINES: Final = 2000
_MAX_TEXT: Final = 1000
_WORKER_LOG_BYTES: Final = 64 * 1024
#: Tokens of callers and of the data plane. None is logged on purpose; this is the second lock.
_SECRET = re.compile(r"gpupool_[0-9a-f]{12}_[0-9a-f]{64}|\b[0-9a-f]{64}\b", re.ASCII)
_NOT_SHOWN: Final = frozenset({"event", "level", "timestamp", "exc_info", "stack_info"})


@dataclass(frozen=True, slots=True)
class Line:
    """One event. ``session``: the one that it concerns; empty: none."""

    at_unix: float
    level: str
    text: str
    session: str = ""


class RecentLog:
    """A processor for structlog: sees each event, changes nothing."""

    def __init__(self, kept: int = KEPT_LINES) -> None:
        self._lines: deque[Line] = deque(maxlen=kept)

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        words = [str(event.get("event", ""))]
        words += [f"{name}={value}" for name, value in event.items() if name not in _NOT_SHOWN]
        if event.get("exc_info"):
            words.append(f"error={sys.exc_info()[1]!r}")
        line = Line(time.time(), method, without_secrets(" ".join(words)), str(event.get("session", "")))
        self._lines.append(line)
        return event

    def latest(self, count: int, session: str = "") -> list[Line]:
        """The last `count` lines, oldest first; with `session` only what concerns it."""
        lines: Iterable[Line] = tuple(self._lines)
        chosen = [line for line in lines if not session or line.session == session]
        return chosen[-count:] if count > 0 else []


def worker_log(workers: Path, session: str, count: int) -> list[Line]:
    """The end of what a session's worker wrote to its standard error; empty when it has ended.

    The time of each line is that of the file: workers write no times.
    """
    if not session.isascii() or not session.isalnum():
        return []
    path = workers / session / "worker.log"
    try:
        written = path.stat().st_mtime
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _WORKER_LOG_BYTES))
            text = file.read(_WORKER_LOG_BYTES).decode(errors="replace")
    except OSError:
        return []
    lines = [Line(written, "worker", without_secrets(line), session) for line in text.splitlines()]
    return lines[-count:] if count > 0 else []


def without_secrets(text: str) -> str:
    """Fit for others to read: no tokens, nothing that a terminal obeys, and not too long."""
    return printable(_SECRET.sub("(secret)", text)[:_MAX_TEXT])
