"""What `%gpu auto` shows beside a cell: each shell of a kernel has its own."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from gpupool.client.session_file import SessionRecord
from gpupool.request.gpu_request import GpuRequest

from jupyter_gpupool.kernel import auto
from jupyter_gpupool.kernel.auto import AutoAttach


def nobody() -> Any:
    raise AssertionError("there is nothing to ask")


def looking() -> int:
    return sum(thread.name == "gpupool auto" for thread in threading.enumerate())


def test_a_cell_of_another_shell_ends_nothing_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto.device, "session", lambda: SessionRecord("none", 1))
    monkeypatch.setattr(auto.device, "wish_for_leases", lambda _: None)
    monkeypatch.setattr(auto, "LOOK_SECONDS", 0.01)
    mode = AutoAttach(nobody)
    mode.on(GpuRequest(None))
    begun, over = threading.Event(), threading.Event()

    def subshell() -> None:
        mode.cell_starts()
        begun.set()
        over.wait()
        mode.cell_ends(None)

    thread = threading.Thread(target=subshell)
    mode.cell_starts()
    thread.start()
    begun.wait()
    assert looking() == 2
    over.set()
    thread.join()
    mode.cell_ends(None)
    mode.off()
    for each in threading.enumerate():
        if each.name == "gpupool auto":
            each.join(30)
    assert looking() == 0
