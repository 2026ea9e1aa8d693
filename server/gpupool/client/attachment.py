"""``with gpupool.attach(0.2):`` and ``@gpupool.gpu(0.2)``: code that has a share of a GPU while it runs.

Attachments nest and overlap. One inside another of the same thread (or task) that is large enough shares its lease and
costs nothing; others ask, and whoever gives this process its GPU keeps one lease for all of them, as large as the
largest, until the last has ended. Nothing ever runs without a GPU by silence: what cannot be had is an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import secrets
import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar, Unpack, cast

from gpupool.client import lender
from gpupool.client.keeper import GivenUp
from gpupool.client.lender import AttachError, Lender
from gpupool.request.forms import of_keywords
from gpupool.request.gpu_request import AttachOptions, GpuRequest

#: How soon a task that waits for a GPU notices an interrupt, seconds.
_LOOK_SECONDS: Final = 0.25

P = ParamSpec("P")
R = TypeVar("R")
#: A share as code writes it: 0.2, "20%", "2.5GiB".
ShareLike = str | float | int | None


@dataclass(slots=True)
class _Held:
    """One scope at the lender, and how many attachments of this thread or its tasks use it."""

    request: GpuRequest
    lender: Lender
    scope: str
    users: int = 1
    lock: threading.Lock = field(default_factory=threading.Lock)

    def join(self, request: GpuRequest) -> bool:
        """Whether it is large enough for ``request``, and still there: then it has one user more."""
        with self.lock:
            if self.users == 0 or not _within(request, self.request):
                return False
            self.users += 1
            return True

    def left(self) -> bool:
        """Whether that was the last user."""
        with self.lock:
            self.users -= 1
            return self.users == 0


_current: ContextVar[_Held | None] = ContextVar("gpupool attachment", default=None)


class Attachment:
    """What :func:`attach` returns; enter it as often as you like, one time after the other."""

    def __init__(self, request: GpuRequest) -> None:
        self._request = request
        self._entered: list[tuple[_Held, Token[_Held | None]]] = []

    def __enter__(self) -> Self:
        held = self._joined()
        if held is None:
            scope, found = secrets.token_hex(8), lender.current()
            found.enter(self._request, scope, GivenUp())
            held = _Held(self._request, found, scope)
        self._entered.append((held, _current.set(held)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        held = self._leaves()
        if not held.left():
            return
        try:
            held.lender.leave(held.scope)
        except AttachError:
            # Of two errors the program's own is the one to see.
            if error is None:
                raise

    async def __aenter__(self) -> Self:
        held = self._joined()
        if held is None:
            scope, found = secrets.token_hex(8), lender.current()
            await _in_thread(found.enter, self._request, scope)
            held = _Held(self._request, found, scope)
        self._entered.append((held, _current.set(held)))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        held = self._leaves()
        if not held.left():
            return
        try:
            # Shielded: a task that is cancelled gives its share back all the same.
            await asyncio.shield(asyncio.to_thread(held.lender.leave, held.scope))
        except AttachError:
            if error is None:
                raise

    def _joined(self) -> _Held | None:
        held = _current.get()
        return held if held is not None and held.join(self._request) else None

    def _leaves(self) -> _Held:
        held, token = self._entered.pop()
        with contextlib.suppress(ValueError):  # it is left in another task than it was entered in
            _current.reset(token)
        return held


def attach(share: ShareLike = None, **options: Unpack[AttachOptions]) -> Attachment:
    """A share of a pooled GPU for a block of code: ``with gpupool.attach(0.2):``, also ``async with``.

    Inside a notebook it is the kernel's session, as for ``%%gpu``; under ``gpupool run`` the command's share, which
    must be large enough; under ``gpupool softgpu`` the command's software GPU; elsewhere the program holds a share of
    its own. What is in GPU memory stays when the block ends, for the next one.

    Args:
        share: of one GPU: ``0.2``, ``"20%"``, or memory: ``"2.5GiB"``. Default: the server's, else 0.2.
        n: the same share of so many GPUs; ``nodes``: where these may lie (``auto one any``).
        wait: longest wait in the queue: seconds, ``"10m"``, 0: not at all, ``"forever"``. Default: the server's, else
            60 s.
        duration: the GPU goes back after so long at the latest, even while the block runs.
        strict: GPU time is capped at the share, also while nobody else wants the device.
        exclusive: a whole GPU that nobody else has a share of.
        project: whose quota it counts against.
        type: what the GPU is called, such as ``"H100"`` or ``"H100|A100"``.
        kind: ``interactive``, ``guaranteed`` or ``preemptible``; ``priority``: inside the project, 1 to 1000.
        filters: what the GPU must be like, such as ``"memory>=40GiB"``; ``node_pools``: where it is taken from.

    Raises:
        ValueError: an argument makes no sense; names it. No GPU: AttachError, when the block is entered.
    """
    return Attachment(of_keywords({"share": share, **options}))


def reset() -> None:
    """Ends this process's GPU session, also one that failed or whose work never ends; the next attach begins another.

    What is in GPU memory is lost, Python variables stay. GPU arrays of before are of no use any more; kernels of numba are.

    Raises:
        AttachError: the session is `gpupool run`'s, or the pool does not answer.
    """
    lender.current().reset()


def gpu(share: ShareLike = None, **more: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function that has a share of a GPU while it runs: ``@gpupool.gpu(0.2)``, above ``def`` and ``async def``.

    Args are those of :func:`attach`.

    Raises:
        TypeError: what it stands above is a generator, whose body runs while its caller's code does, or no function.
    """
    wanted = attach(share, **more) if not callable(share) else None
    if wanted is None:
        raise TypeError("Write @gpupool.gpu() with brackets, or with a share: @gpupool.gpu(0.2).")
    request = wanted._request

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = getattr(function, "__qualname__", repr(function))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"@gpupool.gpu cannot stand above the generator {name}: between its values the caller's code runs, and "
                "the GPU would be held all the while. Use `with gpupool.attach(…):` inside it, or around the loop."
            )
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"@gpupool.gpu stands above a function, {name} is none.")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def with_gpu_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with Attachment(request):
                    return await function(*args, **kwargs)

            return cast("Callable[P, R]", with_gpu_async)

        @functools.wraps(function)
        def with_gpu(*args: P.args, **kwargs: P.kwargs) -> R:
            with Attachment(request):
                return function(*args, **kwargs)

        return with_gpu

    return decorate


async def _in_thread(
    enter: Callable[[GpuRequest, str, GivenUp], object], request: GpuRequest, scope: str
) -> None:
    """Waits in a thread, so that other tasks run; a task that is cancelled leaves the queue."""
    given_up = GivenUp()
    waiting = asyncio.ensure_future(asyncio.to_thread(enter, request, scope, given_up))
    try:
        while not waiting.done():
            # Not in one go: an interrupt of a notebook's kernel cancels the task in a signal handler, which does not
            # wake a loop that sleeps (ipykernel#881).
            await asyncio.wait({waiting}, timeout=_LOOK_SECONDS)
        waiting.result()
    except asyncio.CancelledError:
        given_up.set()
        found = lender.current()

        def give_back(done: asyncio.Future[object]) -> None:
            if not done.cancelled() and done.exception() is None:
                # The grant crossed the cancellation.
                threading.Thread(target=found.leave, args=(scope,), daemon=True).start()

        waiting.add_done_callback(give_back)
        raise


def _within(request: GpuRequest, held: GpuRequest) -> bool:
    """Whether ``request`` asks for no more than ``held``, as far as that can be said without asking."""
    if request == held:
        return True
    wanted, given = request.share, held.share
    if wanted is None or given is None or request.count not in (1, held.count):
        return False
    if request.strict and not held.strict:
        return False
    if wanted.milli is not None and given.milli is not None:
        return wanted.milli <= given.milli
    return wanted.mib is not None and given.mib is not None and wanted.mib <= given.mib
