"""What a cell shows about its GPU while it waits and when it ends."""

from __future__ import annotations

from html import escape
from typing import Any

from gpupool.durations import duration_text
from IPython.display import display


def show(text: str, html: str) -> None:
    """One output of the cell, as text and HTML; both are saved with the notebook."""
    display({"text/plain": text, "text/html": html}, raw=True)  # type: ignore[no-untyped-call]


class Progress:
    """The line about a wait: made at its beginning, updated, and removed where it would be wrong afterwards."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._text = ""

    def queued(self, event: dict[str, Any]) -> None:
        """Shows a change of place: ``{"place": 2, "reason": "…", "eta_seconds": 30 or None}``; 0: in no queue yet."""
        eta = event.get("eta_seconds")
        about = f", about {duration_text(eta)}" if isinstance(eta, int | float) else ""
        where = f": place {event['place']}{about}" if event.get("place") else ""
        text = f"Waiting for a GPU{where}. {event.get('reason') or ''}".rstrip()
        self.tell(text)

    def tell(self, text: str) -> None:
        """Shows a sentence in the place of the one before."""
        if text != self._text:
            self._text = text
            self._put(text)

    def done(self) -> None:
        """The wait is over; the line goes, as it would be wrong in a saved notebook."""
        if self._handle is not None:
            self._put("")

    def _put(self, text: str) -> None:
        html = f'<div class="jp-gpupool-Progress" role="status">{escape(text)}</div>' if text else ""
        bundle = {"text/plain": text, "text/html": html}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)
