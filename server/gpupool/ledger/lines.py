"""Connections to a database that somebody waits on: they can be broken off from another thread.

A network that swallows what is sent ends no connection, nor does a proxy that stands still: the system knows nothing of it, and
whoever waits for an answer there waits for ever.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import structlog
from sqlalchemy import Engine, event

logger = structlog.get_logger(__name__)


class Lines:
    """The connections of an engine that go over psycopg."""

    def __init__(self, engine: Engine) -> None:
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()
        self._adding = threading.Lock()
        event.listen(engine, "connect", self._connected)

    def _connected(self, connection: Any, _record: object) -> None:
        with self._adding:
            self._open.add(connection)

    def break_off(self) -> None:
        """Whoever waits on one of them gets an error now. To be called in any thread."""
        with self._adding:
            lines = list(self._open)
        for line in lines:
            # One that is closed meanwhile has no number any more.
            with contextlib.suppress(Exception), socket.socket(fileno=os.dup(line.fileno())) as its:
                its.shutdown(socket.SHUT_RDWR)


class Deadline:
    """Calls for help when the one who works under it is not done in time.

    Args:
        seconds: the time that the work may take.
        help: called in a thread of its own, again and again until the work is done.
    """

    def __init__(self, seconds: float, help: Callable[[], None]) -> None:
        self._seconds = seconds
        self._help = help
        self._began: float | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Not for two at a time; work within work counts from the beginning of the outer."""
        if self._began is not None:
            yield
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="deadline", daemon=True)
            self._thread.start()
        self._began = time.monotonic()
        try:
            yield
        finally:
            self._began = None

    def close(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(self._seconds / 4):
            began = self._began
            if began is not None and time.monotonic() - began > self._seconds:
                logger.error(
                    "the database does not answer; its connection is broken off", after=self._seconds
                )
                self._help()
