"""Who calls, and what they may call.

On the Unix socket the file system has answered already: the socket lies in a directory that only its owner
may enter, so the caller is the server's own user, and an admin. Over TCP every call needs a token: one of the ledger
(`tokens`), or a short-lived one that a user of a JupyterHub got for the token that the Hub gave to their server (`hub`).
Who shows one of those on the Unix socket is that user there too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

import grpc
import grpc.aio

from gpupool.client.agreement import OTHER_VERSION, PROTOCOL_KEY, PROTOCOL_VERSION, own_version
from gpupool.client.os_user import os_user
from gpupool.pool.access import hidden_users, tokens
from gpupool.pool.access.hub import Hub, HubBusyError, HubDeniedError, HubDownError
from gpupool.pool.access.hub_cache import Short
from gpupool.pool.access.newcomers import place_of
from gpupool.pool.access.token_check import LedgerSilentError, TokenCheck
from gpupool.sentences import Sentence, plain, render, without_users
from gpupool.text import printable

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
    "/gpupool.v1.Administration/OpenPorts": _EVERYONE,
    "/gpupool.v1.Administration/Drain": frozenset({"admin"}),
    "/gpupool.v1.Administration/NodeLogs": frozenset({"admin"}),
    "/gpupool.v1.Growth/ListProviders": frozenset({"admin"}),
    "/gpupool.v1.Growth/Scale": frozenset({"admin"}),
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
    "/gpupool.v1.Identities/Exchange": _EVERYONE,
    "/gpupool.v1.Identities/WhoAmI": _EVERYONE | {"node"},
    "/gpupool.v1.Identities/ListTokens": frozenset({"admin"}),
    "/gpupool.v1.Identities/RevokeToken": frozenset({"admin"}),
    "/gpupool.v1.Servers/Describe": _EVERYONE | {"node"},
    "/gpupool.v1.Nodes/Connect": frozenset({"admin", "node"}),
    # The standard health service says only whether the server serves.
    "/grpc.health.v1.Health/Check": _EVERYONE | {"node"},
}
_EXCHANGE: Final = "/gpupool.v1.Identities/Exchange"
_BEARER: Final = "bearer"
_JUPYTERHUB: Final = "jupyterhub"
_SHORT_PREFIX: Final = "gpupool_hub_"
_HOW_TO_CALL: Final = (
    "this pool needs a token over TCP; name its file in GPUPOOL_TOKEN_FILE "
    "(an admin makes one with `gpupool token create`)"
)
_NOT_KNOWN: Final = (
    "the pool does not know this token: it was revoked, or is of another pool; its file is named by --token-file or "
    "GPUPOOL_TOKEN_FILE (an admin makes a new one with `gpupool token create`)"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller. `name`: a user, or the node's name for role `node`. `token_id`: empty on the socket.

    `check`: of a token of the ledger. `hub`, `hub_id`: of a user of a JupyterHub, who is in its `groups`. `sees_users`:
    whether other users' names are for them to see; what others call their notebooks never is.
    """

    name: str
    role: str
    local: bool = False
    token_id: str = ""
    check: TokenCheck | None = field(default=None, repr=False, compare=False)
    groups: tuple[str, ...] = ()
    sees_users: bool = True
    hub: Hub | None = field(default=None, repr=False, compare=False)
    hub_id: str = ""

    @property
    def is_admin(self) -> bool:
        return self.role == "admin"

    def may_act_for(self, user: str) -> bool:
        return self.is_admin or (self.role == "user" and self.name == user)

    @property
    def viewer(self) -> str | None:
        """The user to whom lists are cut down; None: sees all."""
        return None if self.is_admin else self.name

    def groups_of(self, user: str) -> tuple[str, ...]:
        """As far as is known: only of the caller."""
        return self.groups if user == self.name else ()

    @property
    def blind(self) -> bool:
        """Whether other users' names are taken out of all that the caller is told."""
        return self.role == "user" and not self.sees_users


_current: ContextVar[Identity] = ContextVar("gpupool_identity")
_exchanged: ContextVar[Short] = ContextVar("gpupool_exchanged")


def current_identity() -> Identity:
    """The caller of the running handler."""
    return _current.get()


def current_exchange() -> Short:
    """The short-lived token that the caller of Exchange has got."""
    return _exchanged.get()


async def still_admitted() -> bool:
    """Whether the caller's token has not been revoked since the call began: calls that last ask again."""
    identity = current_identity()
    if identity.hub is not None:
        return identity.hub.is_live(identity.hub_id)
    return identity.check is None or await identity.check.is_live(identity.token_id)


async def refuse_revoked(context: Any) -> NoReturn:
    """Ends a call whose caller is not admitted any more."""
    await refuse(
        context, grpc.StatusCode.UNAUTHENTICATED, "forbidden", "the token of this call has been revoked"
    )


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Finds out the caller's identity before any handler runs, and refuses by role.

    `hub`: the JupyterHub whose users may call. `show_users`: whether users who are no admins see each other's names.
    `first`: may refuse a call before anybody looks who calls.
    """

    def __init__(
        self,
        ledger: tokens.Stored,
        hub: Hub | None = None,
        *,
        show_users: bool = True,
        first: Callable[[Any], Awaitable[None]] | None = None,
    ) -> None:
        self._first = first
        self._check = TokenCheck(ledger)
        self._hub = hub
        self._show_users = show_users
        self._local = Identity(os_user(), "admin", local=True)

    def forget(self, token_id: str) -> None:
        """This token was revoked: it is good no more, also if the ledger does not answer."""
        self._check.forget(token_id)

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
            if self._first is not None:
                await self._first(context)
            await _same_protocol(context)
            identity = await self._identify(context, method)
            _current.set(identity if self._show_users else replace(identity, sees_users=False))

        return _guard(handler, admit)

    async def _identify(self, context: Any, method: str) -> Identity:
        scheme, token = _shown(context)
        identity: Identity | None
        if method == _EXCHANGE:
            identity = await self._from_hub(context, token if scheme == _JUPYTERHUB else "")
        elif scheme == _BEARER and token.startswith(_SHORT_PREFIX):
            identity = self._from_short(token)
            if identity is None:
                text = "this short-lived token has ended; exchange the token of JupyterHub for another one"
                await refuse(context, grpc.StatusCode.UNAUTHENTICATED, "forbidden", text)
        elif context.peer().startswith("unix:"):
            identity = self._local
        else:
            identity = await self._from_token(context, token) if scheme == _BEARER else None
        if identity is None:
            text = _NOT_KNOWN if scheme == _BEARER and token else _HOW_TO_CALL
            await refuse(context, grpc.StatusCode.UNAUTHENTICATED, "forbidden", text)
        if identity.role not in ALLOWED_ROLES.get(method, frozenset()):
            await refuse(
                context,
                grpc.StatusCode.PERMISSION_DENIED,
                "forbidden",
                f"a token of role {identity.role!r} may not call {method.rpartition('/')[2]}; {_who_may(method)}",
            )
        return identity

    async def _from_token(self, context: Any, token: str) -> Identity | None:
        try:
            info = await self._check.verify(token)
        except LedgerSilentError as error:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "ledger", str(error))
        if info is None:
            return None
        return Identity(info.subject, info.role, token_id=info.id, check=self._check)

    def _from_short(self, token: str) -> Identity | None:
        found = self._hub.who(token) if self._hub is not None else None
        if found is None:
            return None
        hub_id, user = found
        role = "admin" if user.admin else "user"
        return Identity(user.name, role, groups=user.groups, hub=self._hub, hub_id=hub_id)

    async def _from_hub(self, context: Any, token: str) -> Identity | None:
        """The owner of a JupyterHub token, who gets a short-lived one for it."""
        if self._hub is None:
            text = "this pool knows no JupyterHub; its administrator names it with `gpupool pool serve --hub-api-url`"
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "no-hub", text)
        if not token:
            text = "a token of JupyterHub is exchanged; none was shown"
            await refuse(context, grpc.StatusCode.UNAUTHENTICATED, "forbidden", text)
        if not _is_secure(context):
            text = "tokens of JupyterHub are accepted over TLS and on the Unix socket only"
            await refuse(context, grpc.StatusCode.PERMISSION_DENIED, "forbidden", text)
        try:
            short = await self._hub.exchange(token, place_of(context.peer()))
        except HubDeniedError as error:
            await refuse(context, grpc.StatusCode.UNAUTHENTICATED, "forbidden", str(error))
        except HubDownError as error:
            await refuse(context, grpc.StatusCode.UNAVAILABLE, "hub-down", str(error))
        except HubBusyError as error:
            await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "hub-busy", str(error))
        _exchanged.set(short)
        return self._from_short(short.token)


def _shown(context: Any) -> tuple[str, str]:
    """Scheme, in small letters, and token of the call's only authorization; empty without."""
    given = [
        value
        for key, value in context.invocation_metadata() or ()
        if key == "authorization" and isinstance(value, str)
    ]
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return scheme.lower(), token.strip()


async def _same_protocol(context: Any) -> None:
    """Refuses a caller of another version; one that names none knows what it does."""
    for key, value in context.invocation_metadata() or ():
        if key == PROTOCOL_KEY and value != str(PROTOCOL_VERSION):
            text = (
                f"this pool speaks version {PROTOCOL_VERSION} of the protocol (gpupool {own_version()}), the caller "
                f"version {printable(str(value))[:20]}; install the same gpupool on both machines"
            )
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, OTHER_VERSION, text)


def _is_secure(context: Any) -> bool:
    """Whether nobody else hears what is said, and nobody else can have answered in our place."""
    if context.peer().startswith("unix:"):
        return True
    return b"ssl" in list((context.auth_context() or {}).get("transport_security_type", ()))


async def refuse(context: Any, code: grpc.StatusCode, reason: str, why: Sentence | str) -> NoReturn:
    """Ends a call with a status, the reason's id in its trailing metadata, and one sentence. A text names no other user."""
    context.set_trailing_metadata((("gpupool-reason", reason),))
    identity = _current.get(None)
    said = plain(why)
    if identity is not None and identity.blind:
        said = without_users(said, identity.name)
    await context.abort(code, render(said))
    raise AssertionError("abort raises")


def _for_caller(answer: Any) -> Any:
    """The one place through which every answer goes, so that no service can forget to hide users."""
    identity = current_identity()
    if identity.blind:
        hidden_users.hide(answer, identity.name)
    return answer


def _guard(handler: Any, admit: Callable[[Any], Awaitable[None]]) -> Any:
    """The same handler, behind the door."""
    inner = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream

    async def answer_one(request: Any, context: Any) -> Any:
        await admit(context)
        return _for_caller(await inner(request, context))

    async def answer_many(request: Any, context: Any) -> AsyncIterator[Any]:
        await admit(context)
        async for item in inner(request, context):
            yield _for_caller(item)

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


def _who_may(method: str) -> str:
    """What whoever may not can do about it."""
    roles = sorted(ALLOWED_ROLES.get(method, frozenset()))
    if roles == ["admin"]:
        return "only an administrator may; ask one, or show an admin's token"
    return f"tokens of role {' or '.join(roles)} may" if roles else "nobody may"
