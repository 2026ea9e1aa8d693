"""The process that holds the GPU share of a program: ``python -m gpupool.client.program.keeper_process``.

It renews the lease whatever the program does: one that computes for a minute in C code without giving Python's lock
away, or is stopped by Ctrl-Z, keeps its share. It ends with the program, however that ends, and gives the share back.

It reads requests from standard input and answers on standard output, a JSON object per line:

* ``{"id": 1, "do": "attach", "body": {…}}`` → any number of ``{"id": 1, "event": "queued", …}``, then
  ``{"id": 1, "event": "attached", …}`` or ``{"id": 1, "event": "refused", "reason": …, "message": …}``;
* ``release detach reset resize status pool choices`` → ``{"id": …, "event": "done", …}`` or ``refused``;
* ``{"do": "cancel", "body": {"of": 1}}`` ends a request under way, without an answer to either;
* ``{"do": "end"}`` ends the keeper, as the end of its standard input does;
* unasked: ``{"event": "ready", "session_file": …}`` once, ``{"event": "said", "text": …}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from gpupool.client.choices import choices
from gpupool.client.errors import GpupoolError, PoolRefusedError, PoolUnavailableError
from gpupool.client.holder import RENEW_SECONDS
from gpupool.client.pool import PoolClient
from gpupool.client.program.run_directory import run_directory
from gpupool.client.program.session import ProgramSession, Wanted
from gpupool.client.program.view import pool_view, session_view
from gpupool.client.refused_memory import RefusedMemory, larger_share
from gpupool.client.session.shell import AttachRefusedError
from gpupool.client.types import LeaseRequest, QueuePlace
from gpupool.request.forms import of_body
from gpupool.request.option import RequestError
from gpupool.shares import Share, ShareError

#: Longest line of a request.
MOST_BYTES: Final = 64 * 1024
#: How long the pool may take to say beforehand what its devices are, seconds.
PREPARE_SECONDS: Final = 3.0


class Keeper:
    """Serves the requests of one program.

    Args:
        tell: writes one answer.
        label: how lists show what holds the share.
    """

    def __init__(
        self, pool: PoolClient, directory: Path, tell: Callable[[dict[str, Any]], None], label: str
    ) -> None:
        self._pool = pool
        self._tell = tell
        self._label = label
        self._requests: dict[int, asyncio.Task[None]] = {}
        self.session = ProgramSession(
            pool,
            directory,
            holder=f"own:{os.uname().nodename}:{os.getppid()}",
            interval=float(os.environ.get("GPUPOOL_RENEW_SECONDS", RENEW_SECONDS)),
            say=lambda text: tell({"event": "said", "text": text}),
        )

    def handle(self, request: dict[str, Any]) -> None:
        """Begins what a request asks for; its answer comes by ``tell``."""
        number = int(request.get("id", 0))
        body = request.get("body") or {}
        if request["do"] == "cancel":
            task = self._requests.get(int(body.get("of", 0)))
            if task is not None:
                task.cancel()
            return
        task = asyncio.create_task(self._answer(number, str(request["do"]), body))
        self._requests[number] = task
        task.add_done_callback(lambda _: self._requests.pop(number, None))

    async def cancel_requests(self) -> None:
        """Ends all that is under way."""
        tasks = list(self._requests.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _answer(self, number: int, what: str, body: dict[str, Any]) -> None:
        try:
            said = await self._do(number, what, body)
            event = "attached" if what == "attach" else "done"
        except (GpupoolError, ShareError, RequestError) as error:
            event, said = "refused", {"reason": _reason(error), "message": str(error)}
        except Exception as error:
            logging.getLogger(__name__).exception("a request failed")
            text = f"The keeper of the GPU share failed ({type(error).__name__}: {error})."
            event, said = "refused", {"reason": "internal", "message": text}
        self._tell({**said, "id": number, "event": event})

    def _do(self, number: int, what: str, body: dict[str, Any]) -> Awaitable[dict[str, Any]]:
        match what:
            case "attach":
                return self._attach(number, body)
            case "release":
                return self._view_after(self.session.leave_scope(str(body["scope"])))
            case "detach":
                return self._view_after(self.session.drop_hold())
            case "reset":
                return self._view_after(self.session.reset())
            case "resize":
                return self._view_after(self.session.resize(Share.parse(str(body["share"]))))
            case "pool":
                return pool_view(self._pool, self.session.holder)
            case "choices":
                return choices(self._pool, None)
            case "status":
                return self._status()
            case "auto":
                return self._auto(body)
            case "report":
                return self._report(body)
        raise PoolRefusedError("bad-request", f"The keeper of the GPU share does not know {what!r}.")

    async def _status(self) -> dict[str, Any]:
        return session_view(self.session)

    async def _view_after(self, done: Awaitable[object]) -> dict[str, Any]:
        await done
        return session_view(self.session)

    async def _attach(self, number: int, body: dict[str, Any]) -> dict[str, Any]:
        def queued(place: QueuePlace) -> None:
            self._tell(
                {
                    "id": number,
                    "event": "queued",
                    "place": place.place,
                    "reason": place.reason,
                    "eta_seconds": place.eta_seconds,
                }
            )

        return await self._view_after(self.session.attach(self._wanted(body), queued))

    async def _auto(self, body: dict[str, Any]) -> dict[str, Any]:
        on = bool(body.get("on"))
        self.session.auto(self._wanted(body) if on else None, as_before=bool(body.get("as_before")))
        return {"auto": dict(body)}

    async def _report(self, body: dict[str, Any]) -> dict[str, Any]:
        """Which share would have room for the allocation on record: its ``larger_share``, null where unknown."""
        record = body.get("out_of_memory")
        if record is None:
            return {}
        refused, larger = RefusedMemory.parse(record), None
        with contextlib.suppress(GpupoolError):  # the numbers are told all the same
            larger = larger_share(refused, self.session.shares, await self._pool.devices())
        shown = larger.view() if larger is not None else None
        return {"usage": {"out_of_memory": {**refused.view(), "larger_share": shown}}}

    def _wanted(self, body: dict[str, Any]) -> Wanted:
        request = of_body(body)
        return Wanted(
            LeaseRequest.of(request, label=self._label),
            scope=str(body.get("scope") or ""),
            hold=request.hold,
            wait_seconds=request.patience,
        )


def _reason(error: Exception) -> str:
    if isinstance(error, PoolRefusedError | AttachRefusedError | RequestError):
        return error.reason
    if isinstance(error, ShareError):
        return "bad-share"
    return "pool-down" if isinstance(error, PoolUnavailableError) else "pool-error"


async def serve(label: str) -> None:
    """Until the program ends, or asks no more."""
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader(limit=MOST_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin.buffer)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Service managers and Slurm send these to all processes of a job. The program may still save its work with the GPU;
        # its own end is ours.
        loop.add_signal_handler(number, lambda: None)
    # Children of the program may hold the pipe open longer than the program lives.
    program = os.pidfd_open(os.getppid())
    loop.add_reader(program, ended.set)

    def tell(answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError, ValueError):  # the program is gone: nobody listens
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()

    with run_directory(os.getppid()) as directory:
        try:
            async with PoolClient() as pool:
                keeper = Keeper(pool, directory, tell, label)
                async with keeper.session:
                    problem = ""
                    try:
                        await asyncio.wait_for(keeper.session.prepare(), PREPARE_SECONDS)
                    except (GpupoolError, TimeoutError) as error:
                        problem = str(error)
                    path = str(keeper.session.files.session.path)
                    tell({"event": "ready", "session_file": path, "problem": problem})
                    await _until_ended(keeper, requests, ended)
                    await keeper.cancel_requests()
        except GpupoolError as error:
            tell({"event": "failed", "message": str(error)})


async def _until_ended(keeper: Keeper, requests: asyncio.StreamReader, ended: asyncio.Event) -> None:
    end = asyncio.create_task(ended.wait())
    while True:
        line = asyncio.create_task(requests.readline())
        await asyncio.wait([end, line], return_when=asyncio.FIRST_COMPLETED)
        if not line.done():
            line.cancel()
            return
        text = line.result()
        request = json.loads(text) if text else {"do": "end"}
        if request["do"] == "end":
            end.cancel()
            return
        keeper.handle(request)


def main() -> None:
    """Serves the process that started it, until its pipe ends; the argument is the label."""
    label = sys.argv[1] if len(sys.argv) > 1 else "python"
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(label))


if __name__ == "__main__":
    main()
