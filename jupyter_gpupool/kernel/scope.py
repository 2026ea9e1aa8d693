"""The life of a ``%%gpu`` cell: attach when it starts, drain and give back when it ends.

:meth:`Scopes.enter` is called by the line that :mod:`jupyter_gpupool.kernel.transform` puts
into the cell, so what it raises is the cell's own error. The end comes by IPython's
``post_run_cell``, which fires after success, error, interrupt and cancellation alike.

Cells nest (``%%time`` runs one inside another) and overlap (subshells run in threads), so
each thread has a stack of the cells it runs, and a scope belongs to one of them.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gpupool.client.keeper import GivenUp
from gpupool.request.forms import body_of
from gpupool.request.gpu_request import GpuRequest
from gpupool.shares import format_milli
from IPython.display import display

from jupyter_gpupool.kernel import device
from jupyter_gpupool.kernel.arguments import parse_cell
from jupyter_gpupool.kernel.broker import Broker, connect
from jupyter_gpupool.kernel.debts import Debts
from jupyter_gpupool.kernel.ending import Ending, distinct, joined, notes_of, wait_for_work
from jupyter_gpupool.kernel.errors import GpuError, GpuWaitInterrupted, GpuWorkInterrupted
from jupyter_gpupool.kernel.failed import FailedSession, Failure
from jupyter_gpupool.kernel.failures import ends_session
from jupyter_gpupool.kernel.figures import Figures, bundle
from jupyter_gpupool.kernel.interrupts import interruptible
from jupyter_gpupool.kernel.lacking_memory import LackingMemory
from jupyter_gpupool.kernel.progress import Progress
from jupyter_gpupool.kernel.server import STREAM_SECONDS

if TYPE_CHECKING:
    from jupyter_gpupool.kernel.auto import AutoAttach

#: How long the server may take to end a session: its worker has a moment for it, seconds.
RESET_SECONDS: Final = 30.0
STILL_ATTACHED: Final = "still attached (%gpu detach gives it back)"


@dataclass(slots=True)
class Scope:
    """One ``%%gpu`` line of a running cell, attached."""

    scope_id: str
    description: str
    hold: bool
    before: device.Reading | None
    started: float


@dataclass(slots=True)
class Cell:
    """A cell that runs now. ``info`` is IPython's object for it, by identity."""

    info: object
    scopes: list[Scope] = field(default_factory=list)
    #: What a cell that it ran inside itself has failed with.
    inner_error: BaseException | None = None
    #: Its execution count, once it has ended; None: it has none.
    number: int | None = None
    interrupted: bool = False
    #: What its last lines have said already.
    notes: list[str] = field(default_factory=list)


class Scopes:
    """What the magics and the transformer call, as ``get_ipython().gpupool``."""

    def __init__(self, connect: Callable[[], Broker] = connect) -> None:
        self._connect = connect
        self._running = threading.local()
        self._debts = Debts(lambda: self._connect())
        #: Share and number of devices of the last attach, as one writes them.
        self.last_share: tuple[str, int] | None = None
        self.auto: AutoAttach | None = None
        self.failed = FailedSession()
        self.lacking = LackingMemory(connect)
        #: Execution count of the last cell that ended.
        self._last_number: int | None = None

    # --- events of IPython ----------------------------------------------------------------

    def pre_run_cell(self, info: object) -> None:
        self._cells().append(Cell(info))
        device.notice_changes()
        if len(self._cells()) == 1:
            self._look_back()
        if self.auto is not None and len(self._cells()) == 1 and self.failed.found() is None:
            self.auto.cell_starts()

    def post_run_cell(self, result: Any) -> None:
        """``result`` is None when the cell was cancelled."""
        cells = self._cells()
        if not cells:
            return
        if result is None:
            cell = cells.pop()
        else:
            # An empty cell has no pre_run_cell: its end must not end another one's scope.
            cell = next((cell for cell in reversed(cells) if cell.info is result.info), None)  # type: ignore[assignment]
            if cell is None:
                return
            cells.remove(cell)
        error = getattr(result, "error_in_exec", None)
        cell.number = getattr(result, "execution_count", None)
        self._last_number = cell.number or self._last_number
        cell.interrupted = result is None or isinstance(error, KeyboardInterrupt)
        known = self.failed.found()
        # As it was when the call failed: what the end of the cell gives back is no reason for it.
        unavailable = device.why_unavailable(error) if error is not None else None
        if not cells:
            # Before its own scopes end: if that of one of them cannot be told, a second try at once is in vain.
            with contextlib.suppress(KeyboardInterrupt):
                self._debts.settle()
        self._report(self.failed.name(cell.number))
        endings = [self._leave(scope, cell) for scope in reversed(cell.scopes)]
        if not cell.scopes:
            self._look_at_hold(cell)
        if error is None and result is not None and any(ending.interrupted for ending in endings):
            error = result.error_in_exec = GpuWorkInterrupted("while the cell's GPU work was waited for")
            _show(error)
        if cells:
            cells[-1].inner_error = error or getattr(result, "error_before_exec", None)
        if self.auto is not None and not cells:
            self.auto.cell_ends(error)
        refused = device.refusal()
        if error is None:
            reason: str | None = refused
        elif known is not None and known is self.failed.found() and device.is_of_cuda(error):
            reason = str(known)
        else:
            reason = unavailable or (refused if refused not in str(error) else None)
        # Where the session was ended, its note says what that means, and a refused call knows no more.
        ended = any(ending.session_ended for ending in endings)
        if reason and not ended and reason not in cell.notes:
            say(reason)

    def _cells(self) -> list[Cell]:
        if not hasattr(self._running, "cells"):
            self._running.cells = []
        cells: list[Cell] = self._running.cells
        return cells

    def cell_magic(self, name: str, line: str, body: str) -> Any:
        """Runs another cell magic below ``%%gpu``; a failure that it keeps to itself is this cell's failure.

        ``%%capture`` runs its body as a cell inside the cell, and would let Run All go on.
        """
        from IPython.core.getipython import get_ipython

        cells = self._cells()
        if cells:
            cells[-1].inner_error = None
        shell: Any = get_ipython()
        value = shell.run_cell_magic(name, line, body)
        if cells and (error := cells[-1].inner_error) is not None:
            raise error
        return value

    def help(self, rest: bool) -> None:
        """What ``%%gpu --help`` shows; ``rest``: there is something below it."""
        from jupyter_gpupool.kernel.magics import help_text

        print(help_text())  # noqa: T201 (the answer of a magic)
        if rest:
            say("the rest of this cell was not run")

    # --- enter ------------------------------------------------------------------------------

    def enter(self, line: str) -> None:
        """Attaches what ``line`` asks for to the cell that runs; waits in the queue if need be.

        Raises:
            GpuError: nothing was attached; the body of the cell does not run.
            GpuWaitInterrupted: the user interrupted the wait.
        """
        cells = self._cells()
        if not cells:
            raise GpuError("%%gpu works as the first line of a cell only.", "bad-arguments")
        request = parse_cell(line)
        scope_id = secrets.token_hex(8)
        started = time.monotonic()
        answer = self.attach(request, scope_id)
        scope = Scope(
            scope_id=scope_id,
            description=str(answer.get("description") or "GPU"),
            hold=request.hold,
            before=None,
            started=time.monotonic(),
        )
        # Registered before the runtime connects: an error from here on gives the share back.
        cells[-1].scopes.append(scope)
        try:
            device.attach(software=bool(answer.get("software")))
        except BaseException:
            if scope.hold:
                # A share that this kernel cannot use must not stay held.
                scope.hold = False
                with contextlib.suppress(GpuError):
                    self._connect().call("POST", "self/detach")
            raise
        scope.before = device.read(reset_peak=True)
        waited = scope.started - started
        if waited >= 1:
            scope.description += f" after {waited:.0f} s of waiting"

    def attach(
        self,
        request: GpuRequest,
        scope_id: str | None,
        *,
        given_up: GivenUp | None = None,
        of_cell: bool = True,
    ) -> dict[str, Any]:
        """Asks the server for a share and waits; without a scope, for the kernel's hold.

        Args:
            request: what is asked for.
            scope_id: what runs with it; None: nothing, it is held.
            given_up: another thread may end the wait by it.
            of_cell: the scope ends with the cell at the latest, else it may outlive it.
        """
        self.failed.refuse()
        self._debts.settle()
        server = self._connect()
        # After an interrupt its hold is dropped, but none of before, and none that was asked for before.
        holds = request.hold and device.session().state not in ("attached", "waiting", "queued")
        body = {**body_of(request), "scope": scope_id, "outlives_cell": not of_cell}
        progress = Progress()
        place: dict[str, Any] | None = None
        try:
            with (
                interruptible(),
                contextlib.closing(server.stream("self/attach", body, STREAM_SECONDS, given_up)) as events,
            ):
                for event in events:
                    if event.get("event") == "queued":
                        place = event
                        progress.queued(event)
                    elif event.get("event") == "waiting":
                        continue
                    elif event.get("event") == "attached":
                        progress.done()
                        self._remember(event)
                        if said := event.get("said"):
                            say(str(said))
                        return event
                    else:
                        raise _refusal(event, request)
            if given_up is not None and given_up.is_set():
                self._withdraw(server, scope_id, holds=holds)
                raise GpuError("The wait for a GPU was given up; nothing is attached.", "cancelled")
            raise GpuError("The Jupyter server ended the request for a GPU without an answer.", "server-down")
        except KeyboardInterrupt:
            self._withdraw(server, scope_id, holds=holds)
            progress.done()
            where = f" (place {place['place']} in the queue)" if place and place["place"] else ""
            raise GpuWaitInterrupted(f"stopped waiting for a GPU{where}; nothing is attached") from None
        except GpuError as error:
            progress.done()
            if error.reason == "server-down" and scope_id is not None:
                self._debts.add(scope_id)  # it may grant the share before it finds that nobody listens
            raise

    def _remember(self, attached: dict[str, Any]) -> None:
        share = attached.get("share")
        if share:
            self.last_share = format_milli(share["milli"]), share["count"]

    def _withdraw(self, server: Broker, scope_id: str | None, *, holds: bool) -> None:
        """The closed connection says it too; this covers a grant that crossed the interrupt."""
        if scope_id is not None:
            try:
                server.call("POST", "self/release", {"scope": scope_id, "reason": "exit"})
            except (GpuError, KeyboardInterrupt):
                self._debts.add(scope_id)
        if holds:
            # Looked at first: a detach would also end a request or a hold of the sidebar. A block in a thread counts as held,
            # too, but by `magic`.
            with contextlib.suppress(GpuError, KeyboardInterrupt):
                status = server.call("GET", "self/status")
                if status.get("held") and status.get("by") == "attach":
                    server.call("POST", "self/detach")

    # --- leave ------------------------------------------------------------------------------

    def _leave(self, scope: Scope, cell: Cell) -> Ending:
        """Drains, reads the counters, gives back, shows.

        Nothing here may raise: the cell's own outcome is what the user must see.
        """
        ending = wait_for_work(interrupted=cell.interrupted)
        figures, after, error = None, None, ending.error if ends_session(ending.error) else 0
        try:
            with interruptible():
                after = device.read()
            if after is not None:
                error = after.failure or error
                # An interrupt of a call in the cell may have ended the session there.
                ending.session_ended |= cell.interrupted and after.state == "lost"
                if scope.before is not None:
                    figures = Figures.between(scope.before, after, time.monotonic() - scope.started)
        except KeyboardInterrupt:
            ending.interrupted = True
        failure = self._note_failure(error, cell.number)
        # While the share is held: what else is free counts with it.
        trouble = self.lacking.found(after, "cell")
        notes = [str(failure)] if failure is not None else notes_of(ending)
        notes.extend(
            self._ended() if ending.session_ended else self.give_back(scope.scope_id, hold=scope.hold)
        )
        notes = distinct(notes)
        cell.notes += notes
        if figures is None and not notes:
            # The runtime never came to life: the cell's error has said why.
            return ending
        note = joined(notes)
        if trouble is not None and STILL_ATTACHED in notes:
            trouble = replace(trouble, way="resize")
        display(bundle(scope.description, figures, note, trouble), raw=True)  # type: ignore[no-untyped-call]
        return ending

    def _look_at_hold(self, cell: Cell) -> None:
        """At the end of a cell that runs on what `%gpu attach` or the sidebar holds."""
        reading = device.flush()
        if reading is None:
            return
        if (failure := self._note_failure(reading.failure, cell.number)) is not None:
            say(str(failure))
        elif cell.interrupted and reading.state == "lost":
            for note in (*notes_of(Ending(session_ended=True)), *self._ended()):
                say(note)
        else:
            self.lacking.cell_ends(reading)

    def _look_back(self) -> None:
        """What a cell submitted may fail after its end: then it broke the session, and not the cell that begins now."""
        if self.failed.found() is None and (reading := device.flush()) is not None:
            self._note_failure(reading.failure, self._last_number)

    def _note_failure(self, error: int, cell: int | None = None) -> Failure | None:
        """The session's failure, if the cell that ends, or still runs, broke it."""
        failure = self.failed.note(error, cell)
        if failure is not None:
            # A call of a later cell must not attach what cannot be used.
            with contextlib.suppress(GpuError):
                device.wish_for_leases(False)
            self._report(failure)
        return failure

    def _report(self, failure: Failure | None) -> None:
        """The sidebar says too which cell it was."""
        if failure is not None and failure.cell is not None:
            with contextlib.suppress(GpuError, KeyboardInterrupt):
                self._connect().call("POST", "self/report", {"failed_cell": f"[{failure.cell}]"})

    def note_failure(self, error: int) -> Failure | None:
        """While a cell runs: what it has submitted has failed with the CUresult ``error``."""
        return self._note_failure(error if ends_session(error) else 0)

    def reset(self) -> dict[str, Any]:
        """Ends the GPU session of this kernel, whatever it does. Raises GpuError: nobody can be asked."""
        state = self._connect().call("POST", "self/reset", seconds=RESET_SECONDS)
        device.forget_session()
        return state

    def _ended(self) -> list[str]:
        """The user ended the session while the cell waited for it: whoever holds its share is told."""
        try:
            self.reset()
        except (GpuError, KeyboardInterrupt) as error:
            return [f"its share goes back by itself soon ({error})"]
        return []

    def give_back(self, scope_id: str, *, hold: bool = False) -> list[str]:
        """Tells that a scope is over, unless ``hold`` keeps its share; what there is to say about it. Raises nothing."""
        for attempt in range(2):
            try:
                server = self._connect()
                state = server.call("POST", "self/release", {"scope": scope_id, "reason": "exit"})
            except KeyboardInterrupt:
                # A second interrupt at the very end: the share must go back all the same.
                if attempt == 0:
                    continue
                self._debts.add(scope_id)
                return ["interrupted while the GPU was given back; it goes back by itself soon"]
            except GpuError as error:
                self._debts.add(scope_id)
                return [f"not given back: {error} It goes back by itself soon, or when the server ends."]
            if state.get("state") not in ("attached", "warned"):
                device.detach()
                lost = state.get("reason") not in (None, "exit") and state.get("message")
                return [str(state["message"])] if lost else []
            return [STILL_ATTACHED] if hold or state.get("held") else []
        return []


#: Refusals that are about the share asked for, so that it must be named as it was written.
_ABOUT_THE_SHARE: Final = frozenset({"bad-share", "full", "quota", "timeout"})


def _refusal(event: dict[str, Any], request: GpuRequest) -> GpuError:
    message = str(event.get("message") or "The GPU was refused.")
    reason = str(event.get("reason") or "error")
    share = request.share.written if request.share is not None else ""
    if reason in _ABOUT_THE_SHARE and share not in message:
        # The pool speaks in its own units: 900GiB comes back as 921600MiB.
        message = f"{share}: {message}"
    return GpuError(message, reason)


def say(text: str) -> None:
    """Tells a person what happens, in the cell's error stream."""
    print(f"gpupool: {text}", file=sys.stderr)  # noqa: T201


def _show(error: BaseException) -> None:
    """As IPython shows what a cell raised."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    shell.showtraceback((type(error), error, error.__traceback__))
