"""The one line that the server logs at its start: which pool, as whom, how many GPUs; or what is wrong."""

from __future__ import annotations

import asyncio
from typing import Final

from gpupool.client.errors import GpupoolError, PoolUnavailableError
from gpupool.client.types import Device

from jupyter_gpupool.server.pool.connection import PoolConnection

#: The pool has so long for its first answers, seconds.
_ANSWER_SECONDS: Final = 15.0


async def greeting(pool: PoolConnection) -> tuple[bool, str]:
    """Whether this server can ask the pool, and the line."""
    usable, said = await _ask(pool)
    return usable, f"{beginning(pool.endpoint, pool.known_user)} {said}"


def beginning(endpoint: str, user: str) -> str:
    """Of the line. Without a user only the pool knows who that is, and has not said."""
    return f"GPU pool {endpoint} as {user}:" if user else f"GPU pool {endpoint}:"


async def _ask(pool: PoolConnection) -> tuple[bool, str]:
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await pool.whoami()
            devices = await pool.devices()
    except TimeoutError:
        return False, f"no answer within {_ANSWER_SECONDS:g} s."
    except PoolUnavailableError as error:
        return False, f"it does not answer ({error.detail})."
    except GpupoolError as error:
        return False, str(error)
    if pool.problem:
        return False, pool.problem
    return True, _devices_text(devices)


def _devices_text(devices: list[Device]) -> str:
    usable = [device for device in devices if device.healthy]
    if not usable:
        return "no GPU now"
    software = sum(device.software for device in usable)
    kind = "" if not software else " (software)" if software == len(usable) else f" ({software} software)"
    return f"{len(usable)} GPU{'s' if len(usable) > 1 else ''}{kind}"
