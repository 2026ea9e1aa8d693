"""Which session is meant by the beginning of an id, for commands that only look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from gpupool.client.errors import PoolRefusedError
from gpupool.client.types import SessionInfo

#: Digits of a session's id.
_WHOLE: Final = 32


async def whole_session(sessions: Callable[[], Awaitable[Sequence[SessionInfo]]], said: str) -> str:
    """The whole id of a session that lists shorten.

    A whole one stays as it is: the journal and the history know sessions for longer than the pool does. So does what
    can't be one, such as the history's ``(others)``.

    Raises:
        PoolRefusedError: the pool knows no session that begins so, or more than one.
    """
    if len(said) >= _WHOLE or not said.isalnum():
        return said
    found = [one.id for one in await sessions() if one.id.startswith(said)]
    if len(found) != 1:
        raise PoolRefusedError(
            "unknown-session",
            f"The pool knows no single session {said[:40]!r}. `gpupool session list --closed` lists the sessions "
            "of the last hour; `gpupool report history --by client` has the whole ids of earlier ones.",
        )
    return found[0]
