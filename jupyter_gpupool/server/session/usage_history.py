"""The last five minutes of a session's use, in samples of one second."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from gpupool.client.types import Usage

#: Samples kept: five minutes at one per second.
SAMPLES: Final = 300
#: Nodes report at least this often while something changes, seconds.
SLOWEST_REPORT_SECONDS: Final = 5.0
#: A report that takes this many times longer than the last one will bring nothing.
OVERDUE: Final = 1.4
_BEGAN: Final = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def sample_time() -> float:
    """Unix seconds as the clock was at the start, and what has passed since: a clock that is set back stops no chart."""
    return _BEGAN + time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Sample:
    """Use over the interval that ended at ``t``.

    Attributes:
        t: Unix time, seconds.
        utilization: measured device time over wall time, 0..1; of several devices the mean.
        memory_bytes: device memory in use, all devices.
        to_device_bps, from_device_bps: bytes per second over the wire.
    """

    t: float
    utilization: float
    memory_bytes: int
    to_device_bps: float
    from_device_bps: float


class UsageHistory:
    """Turns counters since the start of a session into rates.

    The counters are read every second, but they change only when a node reports, which may
    be every five seconds. So a rate is taken between two changes, and stands until the next
    report is overdue; a difference of neighbouring readings would show nothing, then a peak.
    """

    def __init__(self) -> None:
        self.latest: Usage | None = None
        self._changed_at = 0.0
        self._cadence = SLOWEST_REPORT_SECONDS
        self._rates = (0.0, 0.0, 0.0)
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)

    def add(self, usage: Usage, now: float) -> None:
        """Takes counters read at ``now`` (Unix seconds). Counters that went back began anew."""
        before, self.latest = self.latest, usage
        if before is None or usage.device_seconds < before.device_seconds:
            self._changed_at, self._rates = now, (0.0, 0.0, 0.0)
            return
        device = usage.device_seconds - before.device_seconds
        sent = usage.bytes_to_device - before.bytes_to_device
        received = usage.bytes_from_device - before.bytes_from_device
        since_change = now - self._changed_at
        if (device or sent or received) and since_change > 0:
            if since_change <= OVERDUE * SLOWEST_REPORT_SECONDS:
                self._cadence = since_change
            # After a pause the work is as old as one report, not as the pause.
            elapsed = min(since_change, self._cadence)
            # The time of all devices is counted together.
            busy = min(1.0, device / elapsed / max(1, len(usage.memory_used)))
            self._rates = (busy, max(0, sent) / elapsed, max(0, received) / elapsed)
            self._changed_at = now
        elif since_change > OVERDUE * self._cadence:
            self._rates = (0.0, 0.0, 0.0)
        utilization, to_device, from_device = self._rates
        self._samples.append(Sample(now, utilization, sum(usage.memory_used), to_device, from_device))

    def begin_anew(self) -> None:
        """Another session follows, or none: what was read belongs to the former one."""
        self.latest, self._rates = None, (0.0, 0.0, 0.0)

    def since(self, t: float) -> list[Sample]:
        """Samples taken after ``t``, oldest first."""
        return [sample for sample in self._samples if sample.t > t]

    @property
    def utilization(self) -> float:
        """Utilization of the last sample, 0 when there is none."""
        return self._samples[-1].utilization if self._samples else 0.0
