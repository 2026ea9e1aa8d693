"""The wait at a cell's end: whenever somebody interrupts, it goes on, or ends the session, and raises nothing."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
from gpupool.client.runtime import Work

from jupyter_gpupool.kernel import ending
from jupyter_gpupool.kernel.ending import distinct, joined, wait_for_work
from tests.support.patience import BUSY


class Device:
    """What the wait asks of the runtime: work that never ends but with its session.

    Args:
        presses: in which calls the user presses Interrupt.
    """

    def __init__(self, *presses: str) -> None:
        self._presses = list(presses)
        self.over = threading.Event()
        self.calls: list[str] = []

    def drain(self, _: float) -> None:
        assert self.over.wait(60 * BUSY)

    def work(self) -> Work | None:
        self._called("work")
        return Work()

    def end_session(self) -> None:
        self.over.set()
        self._called("end")

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if f"{name} {self.calls.count(name)}" in self._presses:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(ending, "_ONE_PRESS_SECONDS", 0.0)


def wait(monkeypatch: pytest.MonkeyPatch, device: Device) -> Any:
    monkeypatch.setattr(ending, "device", device)
    # Somebody presses on, as long as it takes.
    done = threading.Event()

    def press() -> None:
        while not done.wait(0.3):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    previous = signal.signal(signal.SIGINT, lambda *_: None)
    presser = threading.Thread(target=press)
    presser.start()
    try:
        return wait_for_work(interrupted=True)
    finally:
        done.set()
        presser.join()
        signal.signal(signal.SIGINT, previous)


@pytest.mark.parametrize(
    "presses", [(), ("work 1",), ("work 2",), ("work 1", "work 2"), ("end 1",), ("work 2", "end 1")]
)
def test_interrupts_end_the_session_whenever_they_come(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], presses: tuple[str, ...]
) -> None:
    device = Device(*presses)
    ended = wait(monkeypatch, device)
    assert (ended.interrupted, ended.session_ended) == (True, True)
    assert device.over.is_set()
    assert capsys.readouterr().err.count("Interrupt again to end its GPU session") == 1


def test_notes_say_each_thing_once_and_read_as_one_line() -> None:
    way_on = "The session was reset. Press Attach."
    assert distinct([way_on, "The session was reset.", way_on, "still attached"]) == [
        way_on,
        "still attached",
    ]
    assert joined([way_on, "still attached"]) == f"{way_on} still attached"
    assert joined(["interrupted", "still attached"]) == "interrupted; still attached"
    assert joined([]) == ""
