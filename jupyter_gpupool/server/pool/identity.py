"""Who this server's user is at the pool: how that is shown to it, and whom it takes them for.

The pool decides, not this server, which runs as the user: what is learned here only says what to offer, and in which
name to ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpupool.client.endpoint import TOKEN_FILE_VARIABLE
from gpupool.client.errors import GpupoolError, PoolRefusedError
from gpupool.client.os_user import os_user
from gpupool.client.types import Caller

from jupyter_gpupool.server.pool.port import Pool

logger = logging.getLogger(__name__)

#: What the pool said counts for so long, seconds.
KNOWN_SECONDS: Final = 60.0
#: It has so long for an answer, seconds.
ANSWER_SECONDS: Final = 5.0
#: After a question in vain it is not asked for so long, seconds: else those who wait would each wait for it, one by one.
AGAIN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class PoolAccess:
    """How this server shows who it is, see :class:`gpupool.client.pool.PoolClient`."""

    token_file: Path | None = None
    ca_file: Path | None = None
    hub_identity: bool = False

    def named_token(self) -> tuple[str, str] | None:
        """What names the file of the token that it shows, and the file; None: it shows none."""
        if self.hub_identity:
            return None
        if self.token_file is not None:
            return "c.GpuPoolExtension.token_file", str(self.token_file)
        named = os.environ.get(TOKEN_FILE_VARIABLE)
        return (f"${TOKEN_FILE_VARIABLE}", named) if named else None

    def is_by_token(self, endpoint: str) -> bool:
        """Whether the pool there learns from a token who we are. On a Unix socket it looks at none."""
        return self.named_token() is not None and not endpoint.startswith(("unix:", "unix-abstract:"))


class PoolUser:
    """Whom this server asks for: the one place that knows the name.

    Args:
        setting: ``c.GpuPoolExtension.user``; empty: not set.
        by_token: whether a token says who it is. Then only the pool knows the name, and says it when it first answers.
    """

    def __init__(self, setting: str, *, by_token: bool = False) -> None:
        self.by_token = by_token and not setting
        #: Empty: the pool has not said it, or takes this server for nobody who may ask.
        self.name = "" if self.by_token else setting or default_user()

    def follow(self, caller: Caller) -> None:
        """Hears whom the pool takes this server for."""
        if not self.by_token:
            return
        if caller.is_admin:
            # Who may ask for anybody asks, under a Hub, for whom the server is.
            self.name = _hub_user() or caller.name
        else:
            self.name = caller.name if caller.role == "user" else ""


class PoolCaller:
    """What the pool said last of who we are."""

    def __init__(self) -> None:
        self._caller: Caller | None = None
        self._asked_at = -math.inf
        self._failed_at = -math.inf
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[Caller | None] | None = None

    def is_admin(self, user: str) -> bool:
        """Whether this user is one. An administrator's token that asks for somebody else makes nobody one."""
        return self._caller is not None and self._caller.is_admin and self._caller.name == user

    async def learn(self, pool: Pool) -> Caller | None:
        """Asks unless it was asked a moment ago; None: it does not say now."""
        async with self._lock:
            if time.monotonic() - self._asked_at < KNOWN_SECONDS:
                return self._caller
            if time.monotonic() - self._failed_at < AGAIN_SECONDS:
                return None
            try:
                self._caller = await asyncio.wait_for(pool.whoami(), ANSWER_SECONDS)
                self._asked_at = time.monotonic()
            except PoolRefusedError as refusal:
                # Whoever is not let in any more is no administrator any more.
                self._caller = None
                self._failed_at = time.monotonic()
                logger.debug("the pool does not say who we are: %s", refusal)
            except (GpupoolError, TimeoutError) as error:
                self._failed_at = time.monotonic()
                logger.debug("the pool does not say who we are now: %s", error)
                return None
            return self._caller

    def learn_soon(self, pool: Pool) -> None:
        """The same in the background, if it is time to."""
        if time.monotonic() - self._asked_at < KNOWN_SECONDS or not (self._task is None or self._task.done()):
            return
        self._task = asyncio.ensure_future(self.learn(pool))

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def default_user() -> str:
    """Who the server's kernels belong to, where neither a setting nor a token says so: the Hub's user, else the system's."""
    return _hub_user() or os_user()


def _hub_user() -> str:
    return os.environ.get("JUPYTERHUB_USER", "")
