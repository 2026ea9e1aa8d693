"""Who gives this process its GPU: one seam for :mod:`gpupool.client.attachment`.

A notebook's kernel registers one that asks its Jupyter server. A program under ``gpupool run`` has its share already,
one under ``gpupool softgpu`` the whole software GPU. Everybody else holds a share of their own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, Final, Protocol

from gpupool.client import runtime, software_gpu, stale_handles
from gpupool.client.child_environment import uses_software_gpu_alone
from gpupool.client.errors import GpupoolError
from gpupool.client.keeper import GivenUp, Keeper, KeeperRefusedError, keeper, print_said
from gpupool.client.native import native_directory
from gpupool.client.refused_memory import LargerShare
from gpupool.client.session_file import (
    PROCESS_VARIABLE,
    SESSION_FILE_VARIABLE,
    SessionRecord,
    session_now,
)
from gpupool.request.forms import body_of
from gpupool.request.gpu_request import GpuRequest
from gpupool.shares import format_milli

#: How long the end of an attachment waits for submitted work; a worker that is gone must not hang it, seconds.
DRAIN_SECONDS: Final = 600.0
#: How long a reset may take: a worker has a moment to end, seconds.
RESET_SECONDS: Final = 30.0
#: Says of a process that a Jupyter server started it, or one of its parents.
_SERVER_VARIABLE: Final = "GPUPOOL_SERVER_URL"


class AttachError(GpupoolError, RuntimeError):
    """No GPU was attached, or posted work failed at the end; ``reason`` is an id such as ``full`` or ``deferred``."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Lender(Protocol):
    """Called from any thread; ``scope`` names one attachment."""

    def enter(self, request: GpuRequest, scope: str, given_up: GivenUp) -> object:
        """Returns when this process can use the GPU; ends soon after ``given_up`` is set.

        Raises:
            AttachError: nothing was attached.
        """

    def leave(self, scope: str) -> None:
        """Waits for submitted work, and gives back what no other attachment needs.

        Raises:
            AttachError: submitted work has failed; the share went back all the same.
        """

    def reset(self) -> None:
        """Ends the GPU session of this process, also one that failed or whose work never ends.

        Raises:
            AttachError: it is not this process's to end, or the pool does not answer.
        """


#: What is used where neither request nor server say more.
DEFAULT_SHARE: Final = "0.2"
DEFAULT_WAIT_SECONDS: Final = 60.0


def with_defaults(body: dict[str, Any]) -> dict[str, Any]:
    """A request as the keeper takes it, which has no defaults of its own."""
    share = body.get("share") or DEFAULT_SHARE
    wait = body.get("wait")
    return {**body, "share": share, "wait": DEFAULT_WAIT_SECONDS if wait is None else wait}


class OwnLender:
    """Holds a share of its own, by a keeper process."""

    def __init__(self, found: Callable[[], Keeper] = keeper, say: Callable[[str], None] = print_said) -> None:
        self._keeper = found
        self._say = say

    def enter(self, request: GpuRequest, scope: str, given_up: GivenUp) -> None:
        held = self._keeper()
        answers = held.stream("attach", with_defaults({**body_of(request), "scope": scope}), given_up)
        said = ""
        try:
            for answer in answers:
                if answer["event"] == "queued":
                    where = f" at place {answer['place']}" if answer["place"] else ""
                    text = f"waiting for a GPU{where}: {answer['reason']}"
                    if text != said:
                        said = text
                        self._say(text)
                elif answer["event"] == "attached":
                    self._use(scope, software=bool(answer["software"]))
                    return
                else:
                    raise AttachError(str(answer["reason"]), str(answer["message"]))
        except KeeperRefusedError as error:
            raise AttachError(error.reason, str(error)) from None
        except KeyboardInterrupt:
            answers.close()
            self._give_back(scope)  # a grant that crossed the interrupt
            raise
        self._give_back(scope)
        raise AttachError("cancelled", "The wait for a GPU was given up; nothing is attached.")

    def leave(self, scope: str) -> None:
        problem = ""
        try:
            runtime.drain(DRAIN_SECONDS)
        except GpupoolError as error:
            problem = str(error)
        finally:
            try:
                self._say_what_is_lacking()
            finally:
                self._surely_give_back(scope)
        # The block may have reset the session itself.
        if problem and session_now().reason != "reset":
            raise AttachError("deferred", problem)

    def reset(self) -> None:
        try:
            self._keeper().call("reset", seconds=RESET_SECONDS)
        except KeeperRefusedError as error:
            raise AttachError(error.reason, str(error)) from None
        stale_handles.forget()

    def _say_what_is_lacking(self) -> None:
        """One line about the last allocation without room, while the share is held: what is free counts with it."""
        with contextlib.suppress(KeeperRefusedError, ValueError):
            refused = runtime.counters().refused_memory
            if refused is None:
                return
            answer = self._keeper().call("report", {"out_of_memory": refused.view()})
            larger = LargerShare.parse(answer["usage"]["out_of_memory"]["larger_share"])
            way = "gpupool.attach({!r}" + (f", n={larger.count})" if larger and larger.count > 1 else ")")
            self._say(" ".join([f"{refused.sentence()}.", *([larger.words(way)] if larger else [])]))
            runtime.counters(reset_peak=True)

    def _use(self, scope: str, *, software: bool) -> None:
        try:
            runtime.load(software)
            stale_handles.look(session_now().session)
            runtime.attach()
        except BaseException as error:
            # Calls wait by themselves for a share that is being waited for.
            if isinstance(error, GpupoolError) and runtime.loaded() and session_now().state == "waiting":
                return
            # A share that this process cannot use must not stay held.
            self._give_back(scope)
            if isinstance(error, GpupoolError):
                raise AttachError("runtime", str(error)) from None
            raise

    def _surely_give_back(self, scope: str) -> None:
        """Also if Ctrl-C is pressed in between, which is passed on: nobody else could leave this scope."""
        try:
            self._give_back(scope)
        except KeyboardInterrupt:
            self._give_back(scope)
            raise

    def _give_back(self, scope: str) -> None:
        try:
            state = self._keeper().call("release", {"scope": scope})
        except KeeperRefusedError as error:
            self._say(f"the share was not given back now: {error} It ends by itself in half a minute.")
            return
        if state["state"] not in ("attached", "warned") and runtime.loaded():
            runtime.detach()


class GivenLender:
    """Under ``gpupool run``: the share is there already, and its size is what it is."""

    def enter(self, request: GpuRequest, scope: str, given_up: GivenUp) -> SessionRecord:
        record = session_now()
        if record.state not in ("attached", "waiting"):
            raise AttachError("not-attached", record.message or "The share of this program is over.")
        shares = [tuple(map(int, text.split(":"))) for text in record.share.split(",") if text]
        if request.count not in (len(shares), 1):
            raise AttachError(
                "in-use",
                f"This program has a share of {len(shares)} GPU from gpupool run, and asks for {request.count}: "
                f"start it with gpupool run -n {request.count}.",
            )
        wanted = request.share
        for _, milli, mib in shares:
            if wanted is not None and ((wanted.milli or 0) > milli or (wanted.mib or 0) > mib):
                option = f"-p {wanted}" if wanted.milli is not None else f"-m {wanted.mib}"
                raise AttachError(
                    "in-use",
                    f"This program has {format_milli(milli)} GPU ({mib} MiB) from gpupool run, and asks for {wanted}: "
                    f"start it with gpupool run {option}.",
                )
        return record

    def leave(self, scope: str) -> None:
        """The share stays until the command ends."""

    def reset(self) -> None:
        raise AttachError("in-use", "This program runs under gpupool run, and its GPU session ends with it.")


class AloneLender:
    """Under ``gpupool softgpu``: the software GPU is the program's own, and nobody else waits for it."""

    def enter(self, request: GpuRequest, scope: str, given_up: GivenUp) -> None:
        devices = software_gpu.devices(os.environ)
        if request.count > devices:
            raise AttachError(
                "in-use",
                f"This program has {devices} software GPU{'' if devices == 1 else 's'} from gpupool softgpu, and asks for "
                f"{request.count}: start it with gpupool softgpu --devices {request.count}.",
            )

    def leave(self, scope: str) -> None:
        """The software GPU stays until the command ends."""

    def reset(self) -> None:
        raise AttachError("in-use", "This program runs under gpupool softgpu, and its GPU ends with it.")


_registered: Lender | None = None
_own: Final = OwnLender()


def register(lender: Lender | None) -> None:
    """Makes ``lender`` give this process its GPUs from now on; None: as if none had been registered."""
    global _registered
    _registered = lender


def current() -> Lender:
    """Who is asked now."""
    if _registered is not None:
        return _registered
    if has_given_share():
        return GivenLender()
    return AloneLender() if has_software_gpu() else _own


def has_given_share() -> bool:
    """Whether ``gpupool run`` holds a share for this process.

    A kernel's session, and that of a program with a keeper, serve one process only: its children inherit the variable
    that names the file, and have no part in it.
    """
    named = os.environ.get
    return bool(named(SESSION_FILE_VARIABLE)) and not named(_SERVER_VARIABLE) and not named(PROCESS_VARIABLE)


def has_software_gpu() -> bool:
    """Whether ``gpupool softgpu`` has put the software GPU where this process looks for a driver."""
    return uses_software_gpu_alone(native_directory(), os.environ)


def prepare() -> None:
    """Readies this process for a GPU that it will attach later: call it before importing numba, PyTorch or CuPy.

    numba decides when it is imported what it compiles for, and PyTorch keeps the CUDA libraries that it finds then.
    In notebooks with the magics, under ``gpupool run`` and under ``gpupool softgpu`` that has been done.

    Raises:
        AttachError: the native libraries are missing, another CUDA driver is in use here already, or no keeper starts.
    """
    if _registered is not None or has_software_gpu():
        return
    try:
        if current() is _own:
            keeper().start()
        runtime.load_runtime_api()
        runtime.load(session_now().software)
    except KeeperRefusedError as error:
        raise AttachError(error.reason, str(error)) from None
    except GpupoolError as error:
        raise AttachError("runtime", str(error)) from None
