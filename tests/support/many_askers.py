"""A process that asks a pool for many leases at once, each on a stream of its own, and gives each back when it has it.

    python -m tests.support.many_askers ENDPOINT FIRST COUNT CHANNELS

Prints a line of JSON when all have had their first answer, and one when all have been granted and given back. Times are
of the monotonic clock, which is the same in all processes of a machine.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass
from typing import Any

import grpc.aio
from gpupool.proto import pool_pb2, pool_pb2_grpc

#: Requests are of a whole device, so that one is granted for each that ends.
MILLI = 1000
#: The requests are of so many users: each may have only a part of them waiting.
USERS = 20
#: Seconds that a pool may be away.
PATIENCE = 120.0


@dataclass
class Asker:
    """One request. `place`: as first told; None until then."""

    key: str
    user: str
    sent: float = 0.0
    answered: float = 0.0
    place: int | None = None
    told: int = 0
    granted: float = 0.0
    problem: str = ""
    broken: int = 0


async def ask(stub: Any, asker: Asker, first: asyncio.Queue[None]) -> None:
    message = pool_pb2.RequestLease(
        idempotency_key=asker.key, milli=MILLI, wait_seconds=-1.0, on_behalf_of=asker.user
    )
    asker.sent = time.monotonic()
    try:
        lease = await _persistently(stub, message, asker, first)
        asker.granted = time.monotonic()
        await stub.Release(pool_pb2.ReleaseLease(lease_id=lease, close_session=True, reason="exit"))
    except grpc.aio.AioRpcError as error:
        asker.problem = f"{error.code().name}: {error.details()}"
    except RuntimeError as error:
        asker.problem = str(error)
    finally:
        if not asker.answered:
            first.put_nowait(None)


async def _persistently(stub: Any, message: Any, asker: Asker, first: asyncio.Queue[None]) -> str:
    """Asks again, with the same key, when the pool went away."""
    while True:
        try:
            return await _granted(stub, message, asker, first)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > asker.sent + PATIENCE:
                raise
            asker.broken += 1
            await asyncio.sleep(random.uniform(0.1, 0.5))


async def _granted(stub: Any, message: Any, asker: Asker, first: asyncio.Queue[None]) -> str:
    async for event in stub.Request(message):
        if not asker.answered:
            asker.answered = time.monotonic()
            first.put_nowait(None)
        kind = event.WhichOneof("event")
        if kind == "queued":
            asker.told += 1
            if asker.place is None:
                asker.place = event.queued.place
        elif kind == "granted":
            return str(event.granted.lease_id)
        else:
            raise RuntimeError(f"{asker.key} was refused: {event.refused.reason}")
    raise RuntimeError(f"the stream of {asker.key} ended without an answer")


async def run(endpoint: str, first_number: int, count: int, channels: int) -> None:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 500)]
    opened = [grpc.aio.insecure_channel(endpoint, options) for _ in range(channels)]
    stubs: list[Any] = [pool_pb2_grpc.PoolStub(channel) for channel in opened]  # type: ignore[no-untyped-call, unused-ignore]
    askers = [
        Asker(f"ask-{number:06d}", f"user{number % USERS}")
        for number in range(first_number, first_number + count)
    ]
    first: asyncio.Queue[None] = asyncio.Queue()
    work = [
        asyncio.create_task(ask(stubs[number % channels], asker, first))
        for number, asker in enumerate(askers)
    ]
    for _ in askers:
        await first.get()
    say({"answered": [[a.key, a.place, a.sent, a.answered, a.problem] for a in askers]})
    await asyncio.gather(*work)
    say({"granted": [[a.key, a.granted, a.told, a.problem, a.broken] for a in askers]})
    for channel in opened:
        await channel.close()


def say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
