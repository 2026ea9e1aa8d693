"""``%%gpu`` as IPython knows it (help, completion) and the line magic ``%gpu``."""

from __future__ import annotations

import contextlib
import inspect
import shlex
from dataclasses import replace
from typing import Any, Final

from gpupool.client.hints import hint
from gpupool.durations import duration_text
from gpupool.likeness import nearest
from gpupool.request.forms import body_of
from gpupool.request.option import Place
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

from jupyter_gpupool.kernel.arguments import (
    checked_share,
    minutes,
    parse_auto,
    parse_cell,
    split,
)
from jupyter_gpupool.kernel.broker import Broker, connect
from jupyter_gpupool.kernel.completion import COMMANDS
from jupyter_gpupool.kernel.device import Reading, read
from jupyter_gpupool.kernel.device import attach as attach_runtime
from jupyter_gpupool.kernel.device import detach as detach_runtime
from jupyter_gpupool.kernel.ending import joined, notes_of, wait_for_work
from jupyter_gpupool.kernel.errors import GpuError, GpuUsageError, GpuWorkInterrupted
from jupyter_gpupool.kernel.progress import show
from jupyter_gpupool.kernel.scope import Scopes
from jupyter_gpupool.kernel.tables import auto_text, kernel_lines, pool_html, pool_lines
from jupyter_gpupool.kernel.transform import HELP_WORDS

_USAGE: Final = (
    "%gpu attach [SHARE] [OPTION]... | detach | reset | resize SHARE | status | list | keep [MINUTES] | "
    "auto on [SHARE] [OPTION]... | auto off | widget | help"
)

#: What other tools call the commands. Likeness alone would propose `reset`, which loses arrays, for `release`.
_OTHER_WORDS: Final = {
    "release": "detach",
    "free": "detach",
    "drop": "detach",
    "stop": "detach",
    "acquire": "attach",
    "allocate": "attach",
    "request": "attach",
    "start": "attach",
    "info": "status",
    "show": "status",
    "usage": "status",
    "ls": "list",
    "devices": "list",
    "scale": "resize",
}


@magics_class
class GpuMagics(Magics):
    """The magics; ``scopes`` does the work of cells."""

    def __init__(self, shell: Any, scopes: Scopes) -> None:
        super().__init__(shell)
        self._scopes = scopes

    @no_var_expand
    @line_cell_magic
    def gpu(self, line: str, cell: str | None = None) -> Any:
        """Use a share of a pooled GPU.

        Above a cell, for as long as the cell runs::

            %%gpu 0.2                  a fifth of a GPU (also: 20%, 2560MiB, 2.5GiB)
            %%gpu 0.5 -n 2             half of each of two GPUs
            %%gpu 0.2 --wait 10m       wait at most 10 minutes in the queue (0: not at all, forever: without end)
            %%gpu 0.2 --hold           keep the GPU after the cell, until detached or idle
            %%gpu 0.2 --for 2h         give the GPU back after 2 hours at the latest
            %%gpu 0.2 --strict         never more than a fifth of the time, also while the GPU is idle
            %%gpu --exclusive          a whole GPU; nobody else gets a share of it
            %%gpu 0.5 --type H100      of a GPU with this in its name (H100|A100: one of them)
            %%gpu 1 --project research/vision --kind preemptible --priority 60
                                       the quota that counts, and whether the pool may take it back for others
            %%gpu 1 --filter 'memory>=40GiB' --filter label.zone=a --node-pool a --node-pool b
                                       conditions on the GPU, and the node pools to use

        The Tab key completes options and their values. Other cell magics may stand below (``%%time``,
        ``%%capture``) or, if they run Python, above. A cell that fails stops Run All, with the GPU given back.
        Arrays in GPU memory stay when the cell ends, for the next ``%%gpu`` cell.

        In code, ``with gpupool.attach(0.2):`` and ``@gpupool.gpu(0.2)`` do the same.

        As a line::

            %gpu attach 0.2            hold a share over several cells
            %gpu detach                give it back
            %gpu reset                 end the GPU session: arrays in GPU memory are lost, Python variables stay
            %gpu resize 0.4            change its size
            %gpu status                what this kernel has and uses
            %gpu list                  the pool: devices, shares, queue
            %gpu keep 10               no idle release for 10 minutes
            %gpu auto on 0.2           CUDA calls outside of %%gpu cells attach by themselves, and wait for it
            %gpu auto off              they fail again, and say how to attach
            %gpu widget                live usage
        """
        if cell is not None:
            return self._run_cell(line, cell)
        words = split(line)
        if words and words[0] in HELP_WORDS:
            return _say(help_text())
        command = words[0] if words else "status"
        if command not in COMMANDS:
            meant = _OTHER_WORDS.get(command.lower()) or nearest(command, COMMANDS)
            if command[:1].isdigit():
                hint = f" Did you mean %%gpu {line.strip()} as the first line of the cell?"
            else:
                hint = f" Did you mean %gpu {meant}?" if meant else ""
            raise GpuUsageError(f"{command!r} is not a command of %gpu.{hint} Usage: {_USAGE}")
        return getattr(self, f"_{command}")(words[1:])

    def _run_cell(self, line: str, cell: str) -> None:
        """Only reached when code calls the magic: in a cell the transformer comes first."""
        assert self.shell is not None
        result = self.shell.run_cell(f"%%gpu {line}\n{cell}", store_history=False)  # type: ignore[no-untyped-call]
        # run_cell has shown the traceback already; raising it again would show it twice.
        if not result.success:
            raise UsageError("the %%gpu cell failed")

    def _attach(self, words: list[str]) -> None:
        request = parse_cell(shlex.join(words), Place.LINE)
        answer = self._scopes.attach(replace(request, hold=True), None)
        try:
            attach_runtime(software=bool(answer.get("software")))
        except BaseException:
            # A share that this kernel cannot use must not stay held.
            with contextlib.suppress(GpuError):
                self._server.call("POST", "self/detach")
            raise
        text = f"Attached: {answer.get('description')}. %gpu detach gives it back."
        _say(text)

    def _detach(self, words: list[str]) -> None:
        _no_more(words, "detach")
        ending = wait_for_work()
        if ending.session_ended:
            self._reset([])
            raise GpuWorkInterrupted("%gpu detach")
        state = self._server.call("POST", "self/detach")
        if state.get("state") not in ("attached", "warned"):
            detach_runtime()
            again = " %gpu auto is on: the next CUDA call attaches again." if self._auto_is_on else ""
            _say(f"Detached; what is in GPU memory is kept.{again}")
        else:
            _say(str(state.get("message") or "The GPU is still in use by running code."))
        failure = self._scopes.note_failure(ending.error)
        if notes := [str(failure)] if failure is not None else notes_of(ending):
            raise GpuError(joined(notes), "deferred")

    def _reset(self, words: list[str]) -> None:
        _no_more(words, "reset")
        if self._scopes.reset().get("reason") != "reset":
            return _say("This kernel has no GPU session: there is nothing to reset.")
        _say(
            "Reset: what was in GPU memory is lost, and GPU arrays must be made again. Python variables are kept, and numba "
            "kernels too. The next %%gpu begins a new GPU session."
        )

    def _resize(self, words: list[str]) -> None:
        if len(words) != 1:
            raise GpuUsageError("%gpu resize needs the new share, for instance %gpu resize 0.4.")
        state = self._server.call("POST", "self/resize", {"share": checked_share(words[0])})
        _say(f"Now attached: {state.get('description')}.")

    def _status(self, words: list[str]) -> None:
        _no_more(words, "status")
        failure = self._scopes.failed.found()
        lines = [str(failure)] if failure is not None else []
        reading = read()
        state = self._server.call("GET", "self/status")
        lines += kernel_lines(state, failed=failure is not None, reading=reading)
        if reading is not None and (said := hint(Reading(), reading, 0.0)):
            lines.append(said)
        _say("\n".join(lines))

    def _list(self, words: list[str]) -> None:
        _no_more(words, "list")
        pool = self._server.call("GET", "self/pool")
        if not pool.get("ok"):
            raise GpuError(str(pool.get("error")), "pool-down")
        show("\n".join(pool_lines(pool)), pool_html(pool))

    def _keep(self, words: list[str]) -> None:
        if len(words) > 1:
            raise GpuUsageError("%gpu keep takes a number of minutes only.")
        body = {"minutes": minutes(words[0])} if words else {}
        kept = self._server.call("POST", "self/keep", body)["kept_seconds"]
        _say(f"No idle release for {duration_text(kept)}.")

    def _auto(self, words: list[str]) -> None:
        auto = self._scopes.auto
        assert auto is not None
        request = parse_auto(words)
        if request is None:
            auto.off()
            self._server.call("POST", "self/auto", {"on": False})
            _say("Off: a CUDA call without a GPU fails, and says how to attach one.")
            return
        state = self._server.call("POST", "self/auto", {**body_of(request), "on": True})
        try:
            auto.on(request)
        except BaseException:
            with contextlib.suppress(GpuError):
                self._server.call("POST", "self/auto", {"on": False})
            raise
        _say(f"On: a CUDA call without a GPU attaches {auto_text(state.get('auto'))} and waits for it.")

    def _widget(self, words: list[str]) -> Any:
        _no_more(words, "widget")
        from jupyter_gpupool.widget import GpuUsage

        return GpuUsage()

    @property
    def _auto_is_on(self) -> bool:
        return self._scopes.auto is not None and self._scopes.auto.request is not None

    @property
    def _server(self) -> Broker:
        return connect()


def help_text() -> str:
    """What ``%%gpu?`` shows."""
    return inspect.getdoc(GpuMagics.gpu) or ""


def _no_more(words: list[str], command: str) -> None:
    if words:
        raise GpuUsageError(f"%gpu {command} takes no argument, {' '.join(words)!r} was given.")


def _say(text: str) -> None:
    print(text)  # noqa: T201 (the answer of a magic)
