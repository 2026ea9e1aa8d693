"""Who calls, and what they may call.

On the Unix socket the file system has answered already: the socket lies in a directory that only its owner
may enter, so the caller is the server's own user, and an admin. Over TCP every call needs a token.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import grpc
import grpc.aio

from gpupool.ledger.ledger import Ledger
from gpupool.pool import tokens

_EVERYONE: Final = frozenset({"admin", "user"})
#: Which roles may call what. A method without a row is refused to all.
ALLOWED_ROLES: Final[dict[str, frozenset[str]]] = {
    "/gpupool.v1.Pool/Request": _EVERYONE,
    "/gpupool.v1.Pool/Renew": _EVERYONE,
    "/gpupool.v1.Pool/Release": _EVERYONE,
    "/gpupool.v1.Pool/Resize": _EVERYONE,
    "/gpupool.v1.Pool/CloseSession": _EVERYONE,
    "/gpupool.v1.Pool/ListDevices": _EVERYONE,
    "/gpupool.v1.Pool/ListLeases": _EVERYONE,
    "/gpupool.v1.Pool/ListSessions": _EVERYONE,
    "/gpupool.v1.Pool/ListQueue": _EVERYONE,
    "/gpupool.v1.Pool/GetUsage": _EVERYONE,
    "/gpupool.v1.Pool/Health": _EVERYONE | {"node"},
    "/gpupool.v1.Administration/ListNodes": _EVERYONE,
    "/gpupool.v1.Administration/OpenMeter": _EVERYONE,
    "/gpupool.v1.Administration/Drain": frozenset({"admin"}),
    "/gpupool.v1.Administration/NodeLogs": frozenset({"admin"}),
    "/gpupool.v1.Explanations/Explain": _EVERYONE,
    "/gpupool.v1.Projects/ListProjects": _EVERYONE,
    "/gpupool.v1.Projects/SetProject": frozenset({"admin"}),
    "/gpupool.v1.Projects/ChangeProject": frozenset({"admin"}),
    "/gpupool.v1.Projects/RemoveProject": frozenset({"admin"}),
    "/gpupool.v1.Projects/ListLimits": _EVERYONE,
    "/gpupool.v1.Projects/SetLimit": frozenset({"admin"}),
    "/gpupool.v1.Projects/ChangeLimit": frozenset({"admin"}),
    "/gpupool.v1.Projects/RemoveLimit": frozenset({"admin"}),
    "/gpupool.v1.Maintenance/Backup": frozenset({"admin"}),
    "/gpupool.v1.Reports/Report": _EVERYONE,
    "/gpupool.v1.Reports/Stats": _EVERYONE,
    "/gpupool.v1.Reports/Audit": _EVERYONE,
    "/gpupool.v1.History/Series": _EVERYONE,
    "/gpupool.v1.Nodes/Connect": frozenset({"admin", "node"}),
    # The standard health service says only whether the server serves.
    "/grpc.health.v1.Health/Check": _EVERYONE | {"node"},
}
_BEARER: Final = "bearer "


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller. `name`: a user, or the node's name for role `node`. `token_id`: empty on the socket."""

    name: str
    role: str
    local: bool = False
    token_id: str = ""

    @property
    def is_admin(self) -> bool:
        return self.role == "admin"

    def may_act_for(self, user: str) -> bool:
        return self.is_admin or (self.role == "user" and self.name == user)

    @property
    def viewer(self) -> str | None:
        """The user to whom lists are cut down; None: sees all."""
        return None if self.is_admin else self.name


_current: ContextVar[Identity] = ContextVar("gpupool_identity")


def current_identity() -> Identity:
    """The caller of the running handler."""
    return _current.get()


def still_admitted(ledger: Ledger) -> bool:
    """Whether the caller's token has not been revoked since the call began: calls that last ask again."""
    identity = current_identity()
    return not identity.token_id or tokens.is_live(ledger, identity.token_id)


async def refuse_revoked(context: Any) -> NoReturn:
    """Ends a call whose caller is not admitted any more."""
    await refuse(
        context, grpc.StatusCode.UNAUTHENTICATED, "forbidden", "the token of this call has been revoked"
    )


def os_user() -> str:
    """The name of the user that this process runs as."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid{os.getuid()}"


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Finds out the caller's identity before any handler runs, and refuses by role."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._local = Identity(os_user(), "admin", local=True)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method

        async def admit(context: Any) -> None:
            _current.set(await self._identify(context, method))

        return _guard(handler, admit)

    async def _identify(self, context: Any, method: str) -> Identity:
        if context.peer().startswith("unix:"):
            identity: Identity | None = self._local
        else:
            identity = self._from_token(context)
        if identity is None:
            await refuse(
                context,
                grpc.StatusCode.UNAUTHENTICATED,
                "forbidden",
                "this pool needs a token over TCP; name its file in GPUPOOL_TOKEN_FILE "
                "(an admin makes one with `gpupool token create`)",
            )
        if identity.role not in ALLOWED_ROLES.get(method, frozenset()):
            await refuse(
                context,
                grpc.StatusCode.PERMISSION_DENIED,
                "forbidden",
                f"a token of role {identity.role!r} may not call {method.rpartition('/')[2]}",
            )
        return identity

    def _from_token(self, context: Any) -> Identity | None:
        given = [
            value
            for key, value in context.invocation_metadata() or ()
            if key == "authorization" and isinstance(value, str)
        ]
        if len(given) != 1 or given[0][: len(_BEARER)].lower() != _BEARER:
            return None
        info = tokens.verify(self._ledger, given[0][len(_BEARER) :].strip())
        return None if info is None else Identity(info.subject, info.role, token_id=info.id)


async def refuse(context: Any, code: grpc.StatusCode, reason: str, explanation: str) -> NoReturn:
    """Ends a call with a status, the reason's id in its trailing metadata, and one sentence."""
    context.set_trailing_metadata((("gpupool-reason", reason),))
    await context.abort(code, explanation)
    raise AssertionError("abort raises")


def _guard(handler: Any, admit: Callable[[Any], Awaitable[None]]) -> Any:
    """The same handler, behind the door."""
    inner = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream

    async def answer_one(request: Any, context: Any) -> Any:
        await admit(context)
        return await inner(request, context)

    async def answer_many(request: Any, context: Any) -> AsyncIterator[Any]:
        await admit(context)
        async for item in inner(request, context):
            yield item

    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[(handler.request_streaming, handler.response_streaming)]
    return make(
        answer_many if handler.response_streaming else answer_one,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
