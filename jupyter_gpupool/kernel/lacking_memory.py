"""After code of this kernel has run: what it had no room for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpupool.client.refused_memory import RefusedMemory
from IPython.display import display

from jupyter_gpupool.kernel import device
from jupyter_gpupool.kernel.broker import Broker
from jupyter_gpupool.kernel.errors import GpuError
from jupyter_gpupool.kernel.figures import bundle
from jupyter_gpupool.kernel.out_of_memory import OutOfMemory, Way, told_of


class LackingMemory:
    """Finds what code of this kernel had no room for, tells the server, and says it once. Raises nothing."""

    def __init__(self, connect: Callable[[], Broker]) -> None:
        self._connect = connect
        #: The server shows that the last cell under a hold lacked memory.
        self._shown = False

    def found(self, reading: device.Reading | None, way: Way) -> OutOfMemory | None:
        """What the counters say of it; what runs next begins without it."""
        refused = reading.refused_memory if reading is not None else None
        if refused is None:
            return None
        device.read(reset_peak=True)
        answer = self._report(refused)
        return told_of(answer.get("usage"), way) or OutOfMemory(refused, None, way)

    def tell(self, way: Way, reading: device.Reading | None = None) -> bool:
        """For code without a ``%%gpu`` line, which has no figures to show; whether there was something to say."""
        trouble = self.found(device.read() if reading is None else reading, way)
        if trouble is not None:
            display(bundle("GPU", None, "", trouble), raw=True)  # type: ignore[no-untyped-call]
        return trouble is not None

    def cell_ends(self, reading: device.Reading) -> None:
        """A cell ended that runs on what is held."""
        before, self._shown = self._shown, self.tell("resize", reading)
        if before and not self._shown:
            self._report(None)

    def _report(self, refused: RefusedMemory | None) -> dict[str, Any]:
        try:
            body = {"out_of_memory": refused.view() if refused is not None else None}
            return self._connect().call("POST", "self/report", body)
        except (GpuError, KeyboardInterrupt):
            return {}
