"""The configured pool: connected at the first call, and where that fails, which setting of the server is wrong.

A server whose settings are wrong works all the same, so that its pages and kernels can say what is wrong; when the
file that was missing is there, the next call finds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from gpupool.client.endpoint import EndpointError, parse_endpoints, read_token
from gpupool.client.errors import GpupoolError, PoolRefusedError, PoolUnavailableError, QueueTimeoutError
from gpupool.client.services import CALL_SECONDS
from gpupool.client.types import (
    Caller,
    Device,
    Grant,
    Lease,
    LeaseRequest,
    LeaseStatus,
    Queue,
    QueuePlace,
    SessionInfo,
    Usage,
)
from gpupool.sentences import Sentence, render
from gpupool.shares import Share

from jupyter_gpupool.server.pool.identity import PoolAccess, PoolUser
from jupyter_gpupool.server.pool.port import Pool

#: Makes the connection to the pool; replaced in tests and by sites with their own pool.
PoolFactory: TypeAlias = Callable[[str, PoolAccess], Awaitable[Pool]]
#: Id of a refusal that only whoever configures this server can do something about.
WRONG_SETTING: Final = "wrong-setting"
_CLASS: Final = "c.GpuPoolExtension"
#: A pool that has answered is gone when it is silent for so long, seconds: one that is started again is back before.
GONE_SECONDS: Final = 60.0

_Answer = TypeVar("_Answer")


class WrongSettingError(PoolRefusedError):
    """A setting of this server is wrong; ``str()`` says which, with its value."""

    def __init__(self, explanation: str) -> None:
        super().__init__(WRONG_SETTING, explanation)


class PoolConnection:
    """A :class:`jupyter_gpupool.server.pool.port.Pool` that need not be there yet.

    Args:
        endpoint: where it is.
        access: how this server shows who it is.
        user: whom this server asks for; every request goes out in that name.
        factory: makes the connection.
        words: how a refusal is said to this server's user.
    """

    def __init__(
        self,
        endpoint: str,
        access: PoolAccess,
        user: PoolUser,
        factory: PoolFactory,
        words: Callable[[Sentence], str] = render,
    ) -> None:
        self._endpoint = endpoint
        self._access = access
        self._user = user
        self._factory = factory
        self._words = words
        self._pool: Pool | None = None
        self._connecting = asyncio.Lock()
        #: Whether a pool has ever answered at this address.
        self._answered = False
        #: Since when it has not been reached though it had answered before; None: it was, or nobody has asked since.
        self._silent_since: float | None = None
        self._unreached = ""
        self._unwelcome = ""

    @property
    def endpoint(self) -> str:
        return self._endpoint

    @property
    def answers(self) -> bool:
        """Whether a pool is at this address, as far as is known: one has answered, and is not gone for good."""
        gone = self._silent_since is not None and time.monotonic() >= self._silent_since + GONE_SECONDS
        return self._answered and not gone

    @property
    def known_user(self) -> str:
        """Whom this server asks for; empty: only the pool knows, and has not said."""
        return self._user.name

    @property
    def problem(self) -> str:
        """Which setting keeps this server from asking the pool, as far as is known; empty: none."""
        return self._unreached or self._unwelcome

    async def connected(self) -> Pool:
        """The pool itself. Raises WrongSettingError: it cannot be asked with these settings."""
        async with self._connecting:
            if self._pool is None:
                try:
                    self._pool = await self._factory(self._endpoint, self._access)
                except GpupoolError as error:
                    self._unreached = f"{error} It is {self._wrong_setting()} of this server."
                    raise WrongSettingError(self._unreached) from error
                self._unreached = ""
        return self._pool

    def _wrong_setting(self) -> str:
        """What a connection fails by that has not been tried yet."""
        try:
            parse_endpoints(self._endpoint)
        except EndpointError:
            return f"{_CLASS}.pool_endpoint"
        try:
            read_token(self._access.token_file)
        except GpupoolError:
            return f"{_CLASS}.token_file" if self._access.token_file is not None else "$GPUPOOL_TOKEN_FILE"
        return f"{_CLASS}.hub_identity" if self._access.hub_identity else f"{_CLASS}.pool_ca_file"

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        close = getattr(pool, "close", None)
        if close is not None:
            await close()

    async def _ask(self, call: Callable[[Pool], Awaitable[_Answer]]) -> _Answer:
        pool = await self.connected()
        try:
            answer = await call(pool)
        except PoolUnavailableError as error:
            if self._answered:
                if self._silent_since is None:
                    self._silent_since = time.monotonic()
                raise
            hint = f"no pool has answered there so far; the address is {_CLASS}.pool_endpoint of this server"
            unreached = PoolUnavailableError(error.endpoint, f"{error.detail}; {hint}", error.advice)
            self._unreached = str(unreached)
            raise unreached from error
        except PoolRefusedError as error:
            self._has_answered()
            raise self._in_words(error) from error
        self._has_answered()
        return answer

    def _has_answered(self) -> None:
        self._answered, self._unreached, self._silent_since = True, "", None

    def _in_words(self, error: PoolRefusedError) -> PoolRefusedError:
        """The same refusal as its reader would say it."""
        if error.details is None or not error.details.said:
            return error
        said = self._words(error.details.said)
        if isinstance(error, QueueTimeoutError):
            return QueueTimeoutError(said, error.details)
        return PoolRefusedError(error.reason, said, error.details)

    async def _ask_as_anybody(self, call: Callable[[Pool], Awaitable[_Answer]]) -> _Answer:
        """A call that everybody whom the pool knows may make: who may not is not known to it."""
        try:
            return await self._ask(call)
        except PoolRefusedError as error:
            if error.reason != "forbidden":
                raise
            self._unwelcome = (
                f"The pool at {self._endpoint} does not let this server in: {error}. {self._shown()}."
            )
            raise WrongSettingError(self._unwelcome) from error

    def _shown(self) -> str:
        """Which file has the token, as one clause."""
        named = self._access.named_token()
        return f"{named[0]} is {named[1]!r}" if named else f"{_CLASS}.token_file is not set"

    async def user(self) -> str:
        """Whom this server asks for; the pool is asked where only it knows. Raises what a call raises."""
        if not self._user.name:
            await self.whoami()
        return self._user.name

    # --- the port -------------------------------------------------------------------------

    async def whoami(self) -> Caller:
        caller = await self._ask_as_anybody(lambda pool: pool.whoami())
        self._user.follow(caller)
        acts = caller.is_admin or (caller.role == "user" and caller.name == self._user.name)
        self._unwelcome = "" if acts else self._not_for(f"{caller.name} (role {caller.role})")
        return caller

    def _not_for(self, caller: str) -> str:
        taken = f"The pool takes this server for {caller}, who may not ask"
        if self._user.by_token:
            return f"{taken} for GPUs. {self._shown()}."
        return f"{taken} on behalf of {self._user.name!r}, which is {_CLASS}.user of this server."

    async def request(
        self,
        request: LeaseRequest,
        *,
        on_queued: Callable[[QueuePlace], None] | None = None,
        wait_seconds: float | None = None,
    ) -> Grant:
        asked = replace(request, on_behalf_of=await self.user())
        try:
            return await self._ask(
                lambda pool: pool.request(asked, on_queued=on_queued, wait_seconds=wait_seconds)
            )
        except PoolRefusedError as error:
            if error.reason != "forbidden":
                raise
            who = (
                self._shown()
                if self._user.by_token
                else f"This server asks for {self._user.name!r}: {_CLASS}.user"
            )
            why = self._unwelcome or f"{str(error).rstrip('.')}. {who}."
            raise PoolRefusedError("forbidden", why, error.details) from error

    async def release(self, lease_id: str, reason: str = "release", close_session: bool = False) -> None:
        await self._ask(lambda pool: pool.release(lease_id, reason, close_session))

    async def renew(self, lease_ids: Sequence[str]) -> dict[str, LeaseStatus]:
        return await self._ask(lambda pool: pool.renew(lease_ids))

    async def resize(self, lease_id: str, share: Share) -> Grant:
        return await self._ask(lambda pool: pool.resize(lease_id, share))

    async def close_session(self, session_id: str, reason: str) -> None:
        await self._ask(lambda pool: pool.close_session(session_id, reason))

    async def devices(self) -> list[Device]:
        return await self._ask_as_anybody(lambda pool: pool.devices())

    async def lenders(self) -> list[str]:
        return await self._ask_as_anybody(lambda pool: pool.lenders())

    async def leases(self) -> list[Lease]:
        return await self._ask(lambda pool: pool.leases())

    async def sessions(self) -> list[SessionInfo]:
        return await self._ask(lambda pool: pool.sessions())

    async def queue(self) -> Queue:
        return await self._ask(lambda pool: pool.queue())

    async def usage(self, session_id: str) -> Usage:
        return await self._ask(lambda pool: pool.usage(session_id))

    async def call(self, service: str, name: str, message: Any, seconds: float = CALL_SECONDS) -> Any:
        return await self._ask(lambda pool: pool.call(service, name, message, seconds))
