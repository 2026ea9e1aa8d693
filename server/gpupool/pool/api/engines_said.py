"""What engines say of themselves. Nobody waits for long for one that says nothing."""

from __future__ import annotations

import asyncio
import functools
from typing import Final

from gpupool.providers.contract import Description, Provider, ProviderDownError

#: Seconds that an engine has to answer. Callers wait no longer than 10 s, and there may be several engines.
_PATIENCE: Final = 2.0


class EnginesSaid:
    """By the name of its provider."""

    def __init__(self) -> None:
        self._known: dict[str, Description] = {}
        #: An engine that is silent is not asked again meanwhile.
        self._asking: dict[str, asyncio.Task[Description]] = {}

    def last(self, name: str) -> Description:
        """What it said last; empty: nothing yet."""
        return self._known.get(name, Description(""))

    async def now(self, name: str, provider: Provider) -> tuple[Description, str]:
        """What it says, or said last, and what is wrong with it; empty: nothing."""
        asking = self._asking.get(name)
        if asking is None:
            asking = self._asking[name] = asyncio.create_task(provider.describe(), name=f"engine of {name}")
            asking.add_done_callback(functools.partial(self._answered, name))
        await asyncio.wait({asking}, timeout=_PATIENCE)
        if not asking.done():
            return self.last(name), f"it has not answered for {_PATIENCE:g} s"
        try:
            return asking.result(), ""
        except ProviderDownError as error:
            return self.last(name), str(error)

    def _answered(self, name: str, asking: asyncio.Task[Description]) -> None:
        del self._asking[name]
        if not asking.cancelled() and asking.exception() is None:
            self._known[name] = asking.result()
