"""The files that tell a process of its share: session file, device profile, usage."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from gpupool.client.session.call_message import call_message
from gpupool.client.session.record import Session, State
from gpupool.client.session_file import (
    SILENT,
    SessionFile,
    SessionFileError,
    share_text,
    write_private,
)
from gpupool.client.usage_file import UsageFile
from gpupool.client.wishes import Wishes

logger = logging.getLogger(__name__)

#: How soon a session file that could not be written is written again, seconds.
AGAIN_SECONDS: Final = 1.0


class SessionFiles:
    """What is written for one process, and goes with it.

    Args:
        path: the session file; the others lie beside it.
        asks_later: after the end of a lease the process may ask for another one; else that end is the session's.
        say: is told once, as a sentence, that the session file cannot be written.
    """

    def __init__(
        self, path: Path, *, asks_later: bool = True, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._asks_later = asks_later
        self._say = say
        self.session = SessionFile(path)
        self.usage = UsageFile(path)
        self._profile_path = path.with_suffix(".profile")
        self._profile = ""
        self._software = False
        #: Of the latest lease: monitors go on to show it while the session rests, and not the whole device.
        self._share = ""
        #: Why the latest wish of a call was not granted; empty: it was, or there was none.
        self._refusal = ""
        self._wishes: Wishes | None = None
        #: Whether the holder has told its user of the end that is written: calls that it refuses need not say it again.
        self.end_is_told = False
        #: Why nobody can say whether the lease goes on: calls wait meanwhile. Empty: the pool answers, or there is no lease.
        self.silence = ""
        #: Why the session file does not say what it should, as a sentence; empty: it does.
        self.problem = ""
        self._writes_again: asyncio.TimerHandle | None = None

    def hear(
        self,
        attach: Callable[[], Awaitable[object]] | None,
        publish: Callable[[], None],
        explain: Callable[[Exception], str],
    ) -> None:
        """From now on calls that find no GPU attached have ``attach`` run for them, and wait; None: they fail.

        Args:
            attach: gets a GPU; None: calls fail without one.
            publish: has :meth:`write` called.
            explain: the sentence of what ``attach`` raised.
        """
        self._refusal = ""
        if self._wishes is not None:
            self._wishes.close()
            self._wishes = None
        if attach is None:
            return

        def answered(number: int, refusal: str) -> None:
            self.session.answered = number
            self._refusal = f"%gpu auto is on, but no GPU could be attached: {refusal}" if refusal else ""
            publish()

        self._wishes = Wishes(self.session.path, attach, answered, explain)

    def keep_profile(self, profile: str, software: bool) -> None:
        """The device profile that the session file names from now on; empty: the former one stays.

        A failure is logged: a share that was granted is used without its profile.
        """
        self._software = software
        if profile and profile != self._profile:
            try:
                write_private(self._profile_path, profile.encode())
            except OSError as error:
                logger.error("the device profile %s cannot be written: %s", self._profile_path, error)
            else:
                self._profile = profile

    def write(self, record: Session) -> None:
        """Rewrites the session file, in the session's event loop; that of a closed session goes.

        A failure is said once. The process would wait for ever for a change of its file, so it is written again and again.
        """
        if self._writes_again is not None:
            self._writes_again.cancel()
            self._writes_again = None
        if record.state is State.CLOSED:
            # Before the pool is waited for: a holder that is killed meanwhile leaves no files behind.
            with contextlib.suppress(OSError):  # the share goes back all the same
                self.remove()
            return
        try:
            self._write(record)
        except (OSError, SessionFileError) as error:
            self._writes_again = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self.write, record)
            self._has_problem(error)
        else:
            self.problem = ""

    def _has_problem(self, error: OSError | SessionFileError) -> None:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        problem = (
            f"The session file {self.session.path} cannot be written ({why}). "
            "The program hears of its share as soon as it can be written again."
        )
        if problem != self.problem:
            self.problem = problem
            logger.error("%s", problem)
            self._say(problem)

    def _write(self, record: Session) -> None:
        lease = record.lease
        if lease is None:
            self.silence = ""
        profile = str(self._profile_path) if self._profile else ""
        if lease is not None and not record.resting and not self.silence:
            self._refusal = ""
            self._share = share_text(lease.shares)
            self.session.write_attached(lease, profile=profile, resumes=record.returns)
            return
        if record.resting or record.returning or self.silence:
            state = "waiting"
        else:
            ended = record.state is State.LOST or record.reason == "reset"
            ended = ended or (record.state is State.PARKED and not self._asks_later)
            state = "closed" if ended else str(record.state)
        reason = record.reason or "" if state == "closed" else ""
        self.session.write(
            state,
            session=record.session_id or "",
            message=self._refusal or self.silence or call_message(record),
            software=self._software,
            profile=profile,
            share=self._share if profile else "",
            reason=SILENT if self.silence else reason,
            told=state == "closed" and self.end_is_told,
        )

    def remove(self) -> None:
        self.hear(None, lambda: None, str)
        self.session.remove()
        self.usage.remove()
        self._profile_path.unlink(missing_ok=True)
