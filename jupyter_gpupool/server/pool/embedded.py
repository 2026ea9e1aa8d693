"""**Start a pool here**: a pool on this server's machine, for a server that nobody gave one. It ends with the server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpupool.client.endpoint import home
from gpupool.client.errors import PoolRefusedError
from gpupool.embedded import paths

if TYPE_CHECKING:
    from gpupool.embedded.join import Lifeline

NOT_STARTABLE: Final = "not-startable"
#: What says at which address nodes reach the pool.
_LISTEN_SETTING: Final = "c.GpuPoolExtension.start_pool_listen"
#: The server waits so long for the pool's end, which comes also when it does not wait.
_LEAVE_SECONDS: Final = 10.0


class EmbeddedPool:
    """The pool that this server holds, if somebody has asked for one."""

    def __init__(self) -> None:
        self._lifeline: Lifeline | None = None
        self._starting = asyncio.Lock()
        self._able: bool | None = None

    def fits(self, endpoint: str) -> bool:
        """Whether one that is started here is found at ``endpoint``, and could be started."""
        if self._able is None:
            from gpupool.embedded.join import missing_packages

            self._able = not missing_packages()
        return self._able and endpoint == f"unix:{paths.pool_socket(home())}"

    async def start(self, providers: str, listen: str) -> None:
        """Starts it, or finds the one that this user has already.

        Args:
            providers: a file of engines that lend its GPUs; empty: this machine does.
            listen: where their nodes reach the pool, as `gpupool.embedded.borrowing` takes it.

        Raises:
            EmbeddedError: it cannot be started.
        """
        from gpupool.embedded.borrowing import borrowing
        from gpupool.embedded.join import join
        from gpupool.embedded.options import EmbeddedOptions

        async with self._starting:
            options = EmbeddedOptions()
            if providers:
                options = await asyncio.to_thread(
                    borrowing, options, Path(providers), home(), listen, _LISTEN_SETTING
                )
            before = self._lifeline
            self._lifeline = await asyncio.to_thread(join, home(), options)
            if before is not None:
                # Its keeper was killed since, or has the new lifeline already: without any it would end the pool.
                before.close()

    async def stop(self) -> None:
        """Lets go; the pool ends unless somebody else holds it."""
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            await asyncio.to_thread(lifeline.leave, _LEAVE_SECONDS)


def allowed_by_default() -> bool:
    """Not under a Hub: there administrators say where GPUs are."""
    return not os.environ.get("JUPYTERHUB_API_TOKEN")


def not_startable() -> PoolRefusedError:
    """Why no pool is started by this server."""
    return PoolRefusedError(
        NOT_STARTABLE,
        "This server starts no pool: one is configured for it, or answers, or c.GpuPoolExtension.start_pool_allowed is off.",
    )
