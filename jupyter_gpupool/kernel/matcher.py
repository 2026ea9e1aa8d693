"""Completion of ``%%gpu`` and ``%gpu`` lines, as IPython asks for it: in notebooks, consoles and ``ip.complete``."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from jupyter_gpupool.kernel.broker import Broker, connect
from jupyter_gpupool.kernel.completion import SHARES, Choices, Offers, offers
from jupyter_gpupool.kernel.errors import GpuError

#: What the pool said is offered again for so long.
KNOWN_SECONDS: Final = 15.0
#: Longest time that a press of the Tab key waits for the pool; without an answer the rest is offered.
PATIENCE_SECONDS: Final = 1.5
IDENTIFIER: Final = "gpupool"


class GpuMatcher:
    """Completes the lines of one shell; ``connect`` gives whoever is asked for a GPU.

    Raises nothing: a Tab key that fails says nothing anyway.
    """

    def __init__(
        self,
        connect: Callable[[], Broker] = connect,
        last_share: Callable[[], str | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._last_share = last_share
        self._clock = clock
        self._known = Choices()
        self._known_at = -math.inf

    def match(self, context: CompletionContext) -> SimpleMatcherResult:
        found = self._offers(context)
        if found is None:
            return {"completions": [], "suppress": False}
        return {
            "completions": [SimpleCompletion(text=text, type="magic") for text in found.texts],
            "matched_fragment": found.fragment,
            # Names of variables and files are no options.
            "suppress": True,
            "ordered": True,
        }

    def _offers(self, context: CompletionContext) -> Offers | None:
        lines = context.full_text.split("\n")
        if context.cursor_line >= len(lines):
            return None
        line = lines[context.cursor_line][: context.cursor_position]
        above = any(text.strip() for text in lines[: context.cursor_line])
        if line.lstrip().startswith("%%gpu") and above and not _under_magics(lines[: context.cursor_line]):
            return None
        return offers(line, self._choices)

    def _choices(self) -> Choices:
        now = self._clock()
        if now - self._known_at >= KNOWN_SECONDS:
            self._known_at = now
            with contextlib.suppress(GpuError):
                said = self._connect().call("GET", "self/choices", seconds=PATIENCE_SECONDS)
                self._known = Choices.read(said)
        last = self._last_share()
        shares = (last, *SHARES) if last and last not in SHARES else SHARES
        return replace(self._known, shares=shares)


def _under_magics(lines: list[str]) -> bool:
    """Whether only other cell magics stand above, such as ``%%time``."""
    return all(line.startswith("%%") for line in lines if line.strip())


def install(shell: Any, matcher: GpuMatcher) -> None:
    """Adds it before all others; :func:`uninstall` takes it away."""

    @context_matcher(identifier=IDENTIFIER)  # type: ignore[untyped-decorator]
    def match(context: CompletionContext) -> SimpleMatcherResult:
        return matcher.match(context)

    shell.Completer.custom_matchers.insert(0, match)


def uninstall(shell: Any) -> None:
    """Leaves the matchers of others in their order."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [match for match in matchers if getattr(match, "matcher_identifier", "") != IDENTIFIER]
