"""How long a kernel may go without using its GPU: its own choice, and Keep, within what the administrator allows."""

from __future__ import annotations

from typing import Any, Final

from gpupool.durations import duration_text
from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpupool.server.handlers.asked import BadRequestError, number_of
from jupyter_gpupool.server.handlers.front_end import FrontEndHandler
from jupyter_gpupool.server.watching.idle import LONGEST_SECONDS, IdleLimits

#: The shortest time that can be chosen, seconds.
SHORTEST_SECONDS: Final = 1.0


def choice_of(body: dict[str, Any], limits: IdleLimits) -> float | None:
    """Seconds that a kernel chooses: 0 never, None the server's default."""
    if "minutes" not in body:
        raise BadRequestError("minutes is missing: a number, 0 for never, or null for the server's default.")
    if body["minutes"] is None:
        return None
    seconds = 60 * number_of(body, "minutes", 0, least=0, most=LONGEST_SECONDS / 60)
    if seconds == 0 and not limits.never:
        raise BadRequestError(
            "The administrator does not allow a GPU that is never released; "
            f"the longest time without use is {duration_text(limits.longest)}.",
            "not-allowed",
        )
    if 0 < seconds < SHORTEST_SECONDS:
        raise BadRequestError(
            f"The shortest time without use is {duration_text(SHORTEST_SECONDS)}, {seconds:g} s is less."
        )
    if seconds > limits.longest:
        raise BadRequestError(
            f"The administrator allows at most {duration_text(limits.longest)} without use, "
            f"{duration_text(seconds)} is more.",
            "not-allowed",
        )
    return seconds


class IdleHandler(FrontEndHandler):
    """``POST api/kernels/{id}/idle``: after how many minutes without use the GPU of this kernel goes back."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        limits = self.extension.idle_limits
        seconds = choice_of(self.asked(), limits)
        session = await self.session_of(kernel_id)
        sessions = await self.extension.sessions()
        await sessions.choose_idle(session, seconds, warn_seconds=limits.warn_seconds)
        self.answer(await self.view(session))
