"""Asks for the devices' health without ever waiting long for the answer: NVIDIA's library may hang, heartbeats may not."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from dataclasses import replace
from typing import Final

from gpupool.engines.records import DeviceInventory
from gpupool.node.health import DeviceHealth

#: How long one look waits for the answer, seconds: much less than the time between heartbeats.
LOOK_SECONDS: Final = 1.0
#: After so many looks without an answer the devices are not lent any more.
MOST_LATE: Final = 3
NO_ANSWER: Final = "NVML does not answer"

Verdict = tuple[DeviceInventory, ...]


class HealthWatch:
    """The latest verdict of a judge who is asked once at a time, and again when the answer is there."""

    def __init__(self, health: DeviceHealth, look_seconds: float = LOOK_SECONDS) -> None:
        self._health = health
        self._look_seconds = look_seconds
        self._judging: asyncio.Future[Verdict] | None = None
        self._verdict: Verdict | None = None
        #: Looks since the last answer.
        self._late = 0

    async def look(self, devices: Verdict) -> Verdict:
        """The devices with their health as far as it is known; until the first answer, as the engine reports it."""
        if self._judging is None:
            self._judging = self._judge(devices)
        done, _ = await asyncio.wait({self._judging}, timeout=self._look_seconds)
        if done:
            answer, self._judging, self._late = self._judging, None, 0
            self._verdict = answer.result()
            return self._verdict
        self._late += 1
        known = devices if self._verdict is None else self._verdict
        if self._late < MOST_LATE:
            return known
        return tuple(replace(device, healthy=False, health_reason=NO_ANSWER) for device in known)

    def close(self) -> None:
        """Lets go of the library, unless a call of it is under way: that might hang, too."""
        if self._judging is None:
            self._health.close()

    def _judge(self, devices: Verdict) -> asyncio.Future[Verdict]:
        answer = concurrent.futures.Future[Verdict]()

        def judge() -> None:
            try:
                answer.set_result(self._health.judge(devices))
            except BaseException as error:
                answer.set_exception(error)

        # The end of the process waits for the loop's executor, but not for this thread.
        threading.Thread(target=judge, name="device health", daemon=True).start()
        return asyncio.wrap_future(answer)
