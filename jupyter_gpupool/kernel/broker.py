"""Who a kernel asks for a GPU: the Jupyter server that started it, or, without one, a keeper of its own.

A kernel of papermill, ``nbconvert --execute``, ``jupyter console`` or plain IPython has no server with our extension. It
holds a share of its own where a pool is configured, as `gpupool run` does for a command.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from typing import Any, Final, Protocol

from gpupool.client.keeper import (
    CALL_SECONDS,
    GivenUp,
    Keeper,
    KeeperRefusedError,
    keeper,
    pool_is_configured,
)
from gpupool.client.lender import AttachError, GivenLender, has_given_share, with_defaults
from gpupool.client.session_file import PROCESS_VARIABLE
from gpupool.request.forms import of_body

from jupyter_gpupool.kernel.command import PROBLEM_VARIABLE
from jupyter_gpupool.kernel.errors import GpuError
from jupyter_gpupool.kernel.server import Server

_NO_IDLE_RELEASE: Final = (
    "No Jupyter server watches this kernel, so its GPU does not go back when it is idle: there is nothing to put off. "
    "%gpu detach gives it back."
)
_ALONE: Final = (
    "This kernel was not started by a Jupyter server with jupyter-gpupool, so it asks the pool itself: "
    "GPUPOOL_ENDPOINT and GPUPOOL_TOKEN_FILE say where that is, and who asks."
)
_OF_A_SERVER: Final = ("GPUPOOL_SERVER_URL", "GPUPOOL_KERNEL_ID", "GPUPOOL_CAPABILITY_FILE")


class Broker(Protocol):
    """The requests that a kernel makes. All raise :class:`GpuError` with one sentence."""

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, seconds: float = ...
    ) -> dict[str, Any]: ...

    def stream(
        self, path: str, body: Mapping[str, Any], patience: float, given_up: GivenUp | None = None
    ) -> Generator[dict[str, Any]]: ...


class OwnShare:
    """The same requests, answered by the keeper of this process."""

    def __init__(self, held: Keeper) -> None:
        self._keeper = held

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        seconds: float = CALL_SECONDS,
    ) -> dict[str, Any]:
        what = path.removeprefix("self/")
        if what == "report":
            return {}
        if what == "keep":
            raise GpuError(_NO_IDLE_RELEASE, "no-server")
        if what == "auto" and body is not None:
            asked = {**with_defaults(dict(body)), "as_before": body.get("share") is None}
            return {"auto": {**self._call(what, asked, seconds)["auto"], "share": body.get("share")}}
        return self._call(what, body, seconds)

    def _call(self, what: str, body: Mapping[str, Any] | None, seconds: float) -> dict[str, Any]:
        try:
            return self._keeper.call(what, body, seconds=seconds)
        except KeeperRefusedError as error:
            raise _error(error.reason, str(error)) from None

    def stream(
        self, path: str, body: Mapping[str, Any], patience: float, given_up: GivenUp | None = None
    ) -> Generator[dict[str, Any]]:
        try:
            for event in self._keeper.stream("attach", with_defaults(dict(body)), given_up):
                if event["event"] == "refused" and event["reason"] == "pool-down":
                    raise _error(str(event["reason"]), str(event["message"]))
                yield event
        except KeeperRefusedError as error:
            raise _error(error.reason, str(error)) from None


def _error(reason: str, message: str) -> GpuError:
    """Where the pool cannot be reached, with where it is looked for."""
    return GpuError(f"{message} {_ALONE}" if reason in ("pool-down", "no-keeper") else message, reason)


class GivenShare:
    """Under ``gpupool run``: the share is there already; a cell that asks for no more of it has what it asks for."""

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        seconds: float = CALL_SECONDS,
    ) -> dict[str, Any]:
        if path == "self/reset":
            raise GpuError("This program runs under gpupool run, and its GPU session ends with it.", "in-use")
        if path in ("self/release", "self/status"):
            return {"state": "attached", "held": False, "description": GIVEN, "software": False}
        if path in ("self/choices", "self/report"):
            return {}
        raise GpuError(f"{_HELD}; {_not_here(path)}", "in-use")

    def stream(
        self, path: str, body: Mapping[str, Any], patience: float, given_up: GivenUp | None = None
    ) -> Generator[dict[str, Any]]:
        if body.get("scope") is None:
            raise GpuError(f"{_HELD}; every cell uses it, without %gpu attach.", "in-use")
        try:
            record = GivenLender().enter(of_body(body), str(body.get("scope") or ""), given_up or GivenUp())
        except AttachError as error:
            raise GpuError(str(error), error.reason) from None
        yield {"event": "attached", "description": GIVEN, "software": record.software}


GIVEN: Final = "GPU of gpupool run"
_HELD: Final = "This program runs under gpupool run, which holds its GPU"
#: Commands that are called otherwise than what they ask.
_COMMANDS: Final = {"pool": "list"}


def _not_here(path: str) -> str:
    asked = path.removeprefix("self/")
    return f"%gpu {_COMMANDS.get(asked, asked)} is for kernels that ask for one themselves."


def has_server(environment: Mapping[str, str] | None = None) -> bool:
    """Whether a Jupyter server with the extension started this kernel, and not one of its parents."""
    found = os.environ if environment is None else environment
    own = str(os.getpid())
    return found.get(PROCESS_VARIABLE, own) == own and all(found.get(name) for name in _OF_A_SERVER)


def problem(environment: Mapping[str, str] | None = None) -> str:
    """Why the server that started this kernel gives it no GPU, whatever it asks; empty: it may."""
    found = os.environ if environment is None else environment
    own = str(os.getpid())
    return found.get(PROBLEM_VARIABLE, "") if found.get(PROCESS_VARIABLE, own) == own else ""


def settle_environment() -> None:
    """At the start: what a server said to this kernel is this kernel's, not its children's; and the other way round.

    papermill in a notebook's cell starts a kernel that inherits the first one's environment, with its capability.
    """
    if has_server() or problem():
        os.environ[PROCESS_VARIABLE] = str(os.getpid())
    elif PROCESS_VARIABLE in os.environ:
        for name in (*_OF_A_SERVER, PROBLEM_VARIABLE):
            os.environ.pop(name, None)


def is_alone() -> bool:
    """Whether this kernel has to ask a pool itself, and knows of one."""
    if has_server() or has_given_share() or problem():
        return False
    return pool_is_configured()


def connect() -> Broker:
    """Who is asked now. Raises GpuError where the server said beforehand that nobody can be."""
    if said := problem():
        raise GpuError(f"{said} Restart the kernel when that is corrected.", "configuration")
    if has_server():
        return Server.from_environment()
    return GivenShare() if has_given_share() else OwnShare(keeper())
