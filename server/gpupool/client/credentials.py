"""How a caller shows the pool who they are: a token from a file, or a short-lived one for a token of JupyterHub.

A user's server under JupyterHub has a token of the Hub (``JUPYTERHUB_API_TOKEN``). The pool asks the Hub whose it is and
gives a token of its own for it, good for some minutes; calls carry that one. The Hub's token is sent to the one pool that
is configured, over TLS or a Unix socket only, and only where an administrator switched that on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Protocol

import grpc
import grpc.aio

from gpupool.client.endpoint import is_secure, metadata
from gpupool.client.errors import GpupoolError

#: Set to 1 by the administrator of a Hub, for the extension and the command line.
HUB_IDENTITY_VARIABLE: Final = "GPUPOOL_HUB_IDENTITY"
HUB_TOKEN_VARIABLE: Final = "JUPYTERHUB_API_TOKEN"  # noqa: S105 (the name of a variable)
#: An exchange that failed is not tried again earlier while the former token is good, seconds.
_PAUSE_SECONDS: Final = 2.0

Metadata = tuple[tuple[str, str], ...]
#: Calls Exchange with this metadata.
Exchange = Callable[[Metadata], Awaitable[Any]]


class Credentials(Protocol):
    """What each call carries."""

    async def metadata(self) -> Metadata:
        """May raise what a call raises."""
        ...

    def refused(self, shown: Metadata) -> bool:
        """The pool did not accept what it was shown; whether there may be something better now."""
        ...

    def kept_good(self) -> contextlib.AbstractAsyncContextManager[None]:
        """For a call that lasts: sees to it meanwhile that the pool goes on accepting it."""
        ...


class TokenCredentials:
    """A token, or none; where the pool does not accept it any more, what its file holds by then.

    Args:
        read: reads the file; raises GpupoolError. None: there is no token.
    """

    def __init__(self, read: Callable[[], str | None] | None) -> None:
        self._read = read
        self._metadata = metadata(read() if read is not None else None)

    async def metadata(self) -> Metadata:
        return self._metadata

    def refused(self, shown: Metadata) -> bool:
        # Of calls that are refused together the first reads it, and the rest show that.
        if self._read is not None and shown == self._metadata:
            with contextlib.suppress(GpupoolError):  # it is being replaced: the next call reads it
                self._metadata = metadata(self._read())
        return shown != self._metadata

    @contextlib.asynccontextmanager
    async def kept_good(self) -> AsyncIterator[None]:
        yield


class HubCredentials:
    """Short-lived tokens, exchanged again when half of their time is over."""

    def __init__(self, hub_token: str, exchange: Exchange) -> None:
        self._hub_token = hub_token
        self._exchange = exchange
        self._token = ""
        self._renew_at = self._good_until = 0.0
        self._lock = asyncio.Lock()

    async def metadata(self) -> Metadata:
        if time.monotonic() >= self._renew_at:
            async with self._lock:
                if time.monotonic() >= self._renew_at:
                    await self._renew()
        return metadata(self._token)

    def refused(self, shown: Metadata) -> bool:
        # Of calls that are refused together the first gets another token, and the rest show that.
        if self._token and shown == metadata(self._token):
            self._token = ""
            self._renew_at = self._good_until = 0.0
        return bool(shown)

    @contextlib.asynccontextmanager
    async def kept_good(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._keep_good(), name="short-lived token")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _keep_good(self) -> None:
        while True:
            await asyncio.sleep(max(0.5, self._renew_at - time.monotonic()))
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self.metadata()

    async def _renew(self) -> None:
        started = time.monotonic()
        try:
            short = await self._exchange((("authorization", f"JupyterHub {self._hub_token}"),))
        except grpc.aio.AioRpcError as error:
            refused = error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
            if refused or started >= self._good_until:
                raise
            # The pool or its Hub is away for a moment; what there is goes on.
            self._renew_at = min(self._good_until, started + _PAUSE_SECONDS)
            return
        self._token = short.token
        self._renew_at = started + short.seconds / 2
        self._good_until = started + short.seconds


def wants_hub_identity() -> bool:
    """Whether the environment says that users are those of the Hub."""
    return os.environ.get(HUB_IDENTITY_VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")


def hub_token(endpoint: str) -> str:
    """The Hub's token of this process, for the pool at ``endpoint``.

    Raises:
        GpupoolError: there is none, or others could hear it on its way.
    """
    token = os.environ.get(HUB_TOKEN_VARIABLE, "")
    if not token:
        raise GpupoolError(
            f"The pool wants to know who you are in JupyterHub ({HUB_IDENTITY_VARIABLE}), but there is no "
            f"{HUB_TOKEN_VARIABLE}: this is no server that a Hub started."
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise GpupoolError(f"What is in {HUB_TOKEN_VARIABLE} is no token.")
    if not is_secure(endpoint):
        raise GpupoolError(
            f"The token of JupyterHub is not sent to {endpoint}, where others could hear it; "
            "use tls:host:port, or a Unix socket."
        )
    return token
