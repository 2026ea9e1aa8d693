"""Events of one process in another process of the same user: work of one waits for work of the other."""

from __future__ import annotations

import os
import signal
import time

from tests.support.process_pair import Run, giver, run, taker
from tests.support.runtime_share import Share

__all__ = ["giver", "run", "taker"]  # the fixtures

EVENT = """
SHARED = cu.CUevent_flags.CU_EVENT_INTERPROCESS.value | cu.CUevent_flags.CU_EVENT_DISABLE_TIMING.value
block = upload(np.zeros(2, dtype=np.int64))
event = check(cu.cuEventCreate(SHARED))
say(text_of(check(cu.cuIpcGetMemHandle(block))))
say(text_of(check(cu.cuIpcGetEventHandle(event))))

@cuda.jit
def hold(x, value):
    while cuda.atomic.add(x, 1, 0) == 0:
        pass
    x[0] = value

stream = cuda.stream()
there = array_at(block, 2)
"""

WAIT = """
block, event = open_memory(hear()), check(cu.cuIpcOpenEventHandle(event_handle(hear())))
there = array_at(block, 2)
say("opened")
hear()
"""


def test_work_of_one_process_waits_for_work_of_another(giver: Share, taker: Share, run: Run) -> None:
    first = run(
        giver,
        EVENT
        + """
fails(cu.cuEventCreate(cu.CUevent_flags.CU_EVENT_INTERPROCESS.value), "INVALID_VALUE")
plain = check(cu.cuEventCreate(0))
fails(cu.cuIpcGetEventHandle(plain), "INVALID_HANDLE")
fails(cu.cuIpcOpenEventHandle(cu.CUipcEventHandle()), "INVALID_HANDLE")
fails(cu.cuIpcOpenEventHandle(check(cu.cuIpcGetEventHandle(event))), "INVALID_CONTEXT")
hear()
hold[1, 1, stream](there, 7)
check(cu.cuEventRecord(event, stream.handle))
assert cu.cuEventQuery(event)[0] == cu.CUresult.CUDA_ERROR_NOT_READY
say("recorded")
hear()
check(cu.cuEventSynchronize(event))          # what the other process recorded since
assert download(block, np.zeros(2, np.int64)).tolist() == [8, 1]
say("ok")
""",
    )
    second = run(
        taker,
        WAIT
        + """
NOT_READY = cu.CUresult.CUDA_ERROR_NOT_READY
assert cu.cuEventQuery(event)[0] == NOT_READY
stream, other = cuda.stream(), cuda.stream()
check(cu.cuStreamWaitEvent(stream.handle, event, 0))
raise_by[1, 1, stream](there[:1], 1)
assert cu.cuStreamQuery(stream.handle)[0] == NOT_READY
raise_by[1, 1, other](there[1:], 1)          # lets the kernel of the first process end
check(cu.cuEventSynchronize(event))
stream.synchronize()
assert cu.cuEventQuery(event)[0] == 0
check(cu.cuEventRecord(event, stream.handle))
check(cu.cuEventSynchronize(event))
check(cu.cuEventDestroy(event))
check(cu.cuIpcCloseMemHandle(block))
say("ok")
""",
    )
    second.say(first.hear())
    second.say(first.hear())
    assert second.hear() == "opened"
    first.say()
    assert first.hear() == "recorded"
    second.say()
    second.ends_well()
    first.say()
    first.ends_well()


def test_who_waits_for_a_process_that_dies_is_let_go(giver: Share, taker: Share, run: Run) -> None:
    first = run(
        giver,
        EVENT
        + """
hear()
hold[1, 1, stream](there, 7)
check(cu.cuEventRecord(event, stream.handle))
cu.cuEventQuery(event)
say("recorded")
hear()
""",
    )
    second = run(
        taker,
        WAIT
        + """
stream = cuda.stream()
check(cu.cuStreamWaitEvent(stream.handle, event, 0))
say("waiting")
began = time.monotonic()
check(cu.cuEventSynchronize(event))
stream.synchronize()
assert time.monotonic() - began < 60
check(cu.cuEventDestroy(event))
check(cu.cuIpcCloseMemHandle(block))
say("ok")
""",
    )
    second.say(first.hear())
    second.say(first.hear())
    assert second.hear() == "opened"
    first.say()
    assert first.hear() == "recorded"
    second.say()
    assert second.hear() == "waiting"
    time.sleep(0.2)
    assert giver.worker.process is not None
    os.kill(giver.worker.process.pid, signal.SIGKILL)
    giver.worker.process.wait()
    second.ends_well()
