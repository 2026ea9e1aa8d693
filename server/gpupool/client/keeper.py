"""A program's own share of a GPU, where no Jupyter server and no `gpupool run` holds one for it.

The share is held by a process beside the program (:mod:`gpupool.client.program.keeper_process`), started at the first need and
ended with the program. Only the standard library is needed here.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from gpupool.client.errors import GpupoolError
from gpupool.client.native import native_directory
from gpupool.client.session_file import PROCESS_VARIABLE, SESSION_FILE_VARIABLE

#: An ordinary request that takes longer has failed, seconds.
CALL_SECONDS: Final = 20.0
#: The keeper's start: an interpreter, gRPC, and the first word of the pool, seconds.
START_SECONDS: Final = 20.0
#: How long the end of the program waits for the share to be given back, seconds.
CLOSE_SECONDS: Final = 5.0


class KeeperRefusedError(GpupoolError):
    """The answer is no; ``reason`` is an id as of :class:`gpupool.client.errors.PoolRefusedError`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def print_said(text: str) -> None:
    """Says on standard error what happens to the share."""
    print(f"gpupool: {text}", file=sys.stderr, flush=True)  # noqa: T201 (for people)


class GivenUp:
    """Somebody waits for a GPU in one thread, and another thread says that nobody wants it any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._then: Callable[[], None] | None = None

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        with self._lock:
            self._set, then = True, self._then
        if then is not None:
            then()

    def when(self, then: Callable[[], None]) -> None:
        """Has ``then`` called in the thread that gives up; at once, if it has already."""
        with self._lock:
            self._then = then
            given_up = self._set
        # Else `set` calls it, and only once.
        if given_up:
            then()


class Keeper:
    """The keeper of this process. Threads may use it at once.

    Args:
        say: is told, one sentence each, what happens to the share; called from a thread of its own.
    """

    def __init__(self, say: Callable[[str], None] = print_said) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any] | None]] = {}
        self._log: IO[bytes] | None = None

    def start(self) -> str:
        """Starts the keeper, if it does not run yet; why the pool does not answer, empty if it does.

        From now on the session file is named by this process's environment.

        Raises:
            KeeperRefusedError: it cannot be started.
        """
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return ""
            return self._start()

    @property
    def running(self) -> bool:
        process = self._process
        return process is not None and process.poll() is None and self._pid == os.getpid()

    def call(
        self, what: str, body: Mapping[str, Any] | None = None, *, seconds: float = CALL_SECONDS
    ) -> dict[str, Any]:
        """One request, one answer. Raises KeeperRefusedError, also without an answer after ``seconds``."""
        number, answers = self._send(what, body)
        try:
            answer = answers.get(timeout=seconds)
        except queue.Empty:
            raise KeeperRefusedError(
                "no-answer", f"The keeper of the GPU share does not answer ({what})."
            ) from None
        finally:
            self._answers.pop(number, None)
        return _checked(answer, self._last_words)

    def stream(
        self, what: str, body: Mapping[str, Any], given_up: GivenUp | None = None
    ) -> Generator[dict[str, Any]]:
        """One request, its answers until the last, a refusal included.

        Closing the iterator ends the request, and so does ``given_up``, from another thread.
        """
        number, answers = self._send(what, body)
        over = False
        if given_up is not None:
            given_up.when(lambda: answers.put(None))
        try:
            while not over:
                answer = answers.get()
                if given_up is not None and given_up.is_set():
                    return
                if answer is None:
                    over = True
                    _checked(answer, self._last_words)
                    return
                over = answer["event"] != "queued"
                yield answer
        finally:
            self._answers.pop(number, None)
            if not over:
                with contextlib.suppress(KeeperRefusedError):
                    self._write({"do": "cancel", "body": {"of": number}})

    def close(self) -> None:
        """Gives everything back and ends the keeper; it starts again at the next need."""
        with self._lock:
            process, self._process = self._process, None
        if process is None or self._pid != os.getpid():
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            # A child that was made by fork may hold the pipe open for longer.
            process.stdin.write(b'{"do": "end"}\n')
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            # It goes on trying, and ends by itself; the share ends half a minute later at the latest.
            return

    # --- the process --------------------------------------------------------------------------------

    def _start(self) -> str:
        command = [sys.executable, "-P", "-m", "gpupool.client.program.keeper_process", _label()]
        # Our libraries are for programs that use a GPU, and a keeper of a keeper there is not.
        left_out = ("LD_PRELOAD", SESSION_FILE_VARIABLE)
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        # Where this package is, and nothing else of the program's own path, in which a queue.py may lie.
        paths = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment,
                # Ctrl-C and Ctrl-Z of a terminal are for the program.
                start_new_session=True,
            )
        except OSError as error:
            raise KeeperRefusedError(
                "no-keeper", f"The keeper of the GPU share cannot be started ({error})."
            ) from None
        self._process, self._pid = process, os.getpid()
        try:
            ready = self._first_word(process)
        except BaseException:  # Ctrl-C, too: a keeper whose session file nobody knows is of no use
            process.kill()
            process.wait()
            self._process = None
            raise
        atexit.unregister(self.close)
        atexit.register(self.close)
        os.environ[SESSION_FILE_VARIABLE] = str(ready["session_file"])
        os.environ[PROCESS_VARIABLE] = str(os.getpid())
        os.environ.setdefault("TRITON_LIBCUDA_PATH", str(native_directory() / "client"))
        return str(ready.get("problem") or "")

    def _first_word(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        first: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._answers = {0: first}
        listening = (process, self._answers)
        threading.Thread(target=self._listen, args=listening, name="gpupool keeper", daemon=True).start()
        try:
            ready = first.get(timeout=START_SECONDS)
        except queue.Empty:
            raise KeeperRefusedError("no-keeper", "The keeper of the GPU share does not start.") from None
        if ready is None or ready["event"] != "ready":
            words = ready["message"] if ready is not None else self._last_words()
            raise KeeperRefusedError("no-keeper", words)
        return ready

    def _listen(
        self,
        process: subprocess.Popen[bytes],
        answers: dict[int, queue.SimpleQueue[dict[str, Any] | None]],
    ) -> None:
        """`answers`: of those who wait for this process; the next one has others."""
        assert process.stdout is not None
        for line in process.stdout:
            answer = _answer_of(line)
            if answer is None:
                continue
            if answer["event"] == "said":
                with contextlib.suppress(Exception):  # who cannot be told need not be
                    self._say(str(answer["text"]))
                continue
            waiting = answers.get(int(answer.get("id", 0)))
            if waiting is not None:
                waiting.put(answer)
        process.wait()
        for waiting in list(answers.values()):
            waiting.put(None)

    def _send(
        self, what: str, body: Mapping[str, Any] | None
    ) -> tuple[int, queue.SimpleQueue[dict[str, Any] | None]]:
        self.start()
        number = next(self._numbers)
        answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._answers[number] = answers
        self._write({"id": number, "do": what, "body": dict(body or {})})
        return number, answers

    def _write(self, request: Mapping[str, Any]) -> None:
        line = (json.dumps(request) + "\n").encode()
        with self._lock:
            process = self._process
            try:
                if process is None or process.stdin is None:
                    raise BrokenPipeError
                process.stdin.write(line)
                process.stdin.flush()
            except (OSError, ValueError):
                raise KeeperRefusedError("no-keeper", self._last_words()) from None

    def _last_words(self) -> str:
        """The end of the keeper, with the last line that it wrote."""
        last = ""
        if self._log is not None:
            with contextlib.suppress(OSError, ValueError):
                self._log.seek(0)
                lines = self._log.read().decode(errors="replace").strip().splitlines()
                last = f": {lines[-1]}" if lines else ""
        return f"The process that holds the GPU share of this program has ended{last}."


def _answer_of(line: bytes) -> dict[str, Any] | None:
    """None: it is none of the keeper's. What an environment runs in each interpreter (`sitecustomize`) may print there."""
    try:
        answer = json.loads(line)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) and "event" in answer else None


def _checked(answer: dict[str, Any] | None, last_words: Callable[[], str]) -> dict[str, Any]:
    if answer is None:
        raise KeeperRefusedError("no-keeper", last_words())
    if answer["event"] == "refused":
        raise KeeperRefusedError(str(answer["reason"]), str(answer["message"]))
    return answer


def _label() -> str:
    """What people call this program: its script or notebook, as far as it is known."""
    named = Path(sys.argv[0] if sys.argv else "").name
    if named.startswith("ipykernel"):
        named = Path(os.environ.get("JPY_SESSION_NAME", "")).name or "notebook"
    return (os.environ.get("GPUPOOL_LABEL") or named or "python")[:80]


_keeper: Keeper | None = None
_lock = threading.Lock()


def keeper() -> Keeper:
    """That of this process; a forked child has one of its own."""
    global _keeper
    with _lock:
        if _keeper is None or _keeper._pid != os.getpid():
            _keeper = Keeper()
        return _keeper


def pool_is_configured() -> bool:
    """Whether the environment names a pool, or one serves on this machine: as :mod:`gpupool.client.endpoint` looks for it.

    That module brings gRPC, which a program with a keeper does without.
    """
    if os.environ.get("GPUPOOL_ENDPOINT"):
        return True
    home = os.environ.get("GPUPOOL_HOME") or Path.home() / ".local" / "state" / "gpupool"
    return (Path(home) / "pool.sock").exists()
