"""A lease that is taken back for another: CUDA calls wait meanwhile, and the program's results are right.

The holder is played by the test, which writes the session file; the worker and the client runtime are real.
"""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from benchmarks.network import Network, emulated
from benchmarks.worker_process import boottime_ns
from tests.support.runtime_share import NUMBA, PRELUDE, SHARE_MIB, Share, share
from tests.support.stack import wait_until

__all__ = ["share"]  # the fixture

#: Adds one to every element, again and again, and says how often; ends when it is told to.
COUNTING = (
    NUMBA
    + """
import sys, threading, time

x = cuda.to_device(np.zeros(4096))
one = cuda.to_device(np.ones(4096))
add[16, 256](x, one, x)
cuda.synchronize()
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
print("counting", flush=True)
rounds = 1
while not ended.is_set():
    add[16, 256](x, one, x)  # nobody waits for it
    rounds += 1
    if rounds % 50 == 0:
        assert x[7] == rounds, (x[7], rounds)
found = x.copy_to_host()
assert (found == rounds).all(), (found[:4], rounds)
print("ok")
"""
)


def settled(share: Share) -> bool:
    path = Path(f"{share.file}.settled")
    return path.exists() and path.read_text().strip() == share.fields["generation"]


def take_back(share: Share, message: str = "another project needs it") -> None:
    """As a holder does it: calls cease, what lies there is executed, the lease ends."""
    generation = int(share.fields["generation"]) + 1
    share.write(state="waiting", generation=str(generation), message=message)
    wait_until(lambda: settled(share), 20, "the program's work to be done")
    assert share.worker.ask(f"revoke epoch={share.fields['epoch']}").startswith("ok")


def give_again(share: Share) -> None:
    epoch = int(share.fields["epoch"]) + 1
    deadline = boottime_ns() + 600 * 10**9
    answer = share.worker.ask(f"lease epoch={epoch} deadline_ns={deadline} share=0:500:{SHARE_MIB}")
    assert answer.startswith("ok"), answer
    share.write(state="attached", generation=str(int(share.fields["generation"]) + 1), epoch=str(epoch))


def started(share: Share, program: str, prelude: str = "") -> subprocess.Popen[str]:
    share.write(resumes="1")
    process = share.start(program, prelude, NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS="0")
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "counting\n", line + (process.communicate()[1] if process.poll() is not None else "")
    return process


def test_a_program_in_the_middle_of_kernels_goes_on_with_the_right_result(share: Share) -> None:
    process = started(share, COUNTING)
    for _ in range(3):
        time.sleep(0.2)
        take_back(share)
        assert share.worker.ask(f"park epoch={share.fields['epoch']}").startswith("ok")
        time.sleep(0.2)
        assert process.poll() is None
        give_again(share)
    out, errors = process.communicate("end\n", timeout=60)
    assert out == "ok\n", out + errors + share.logged()


def test_a_call_under_a_lease_that_ended_without_notice_waits_for_what_the_holder_says(share: Share) -> None:
    process = started(
        share,
        """
start()
data = np.arange(1000)
pointer = upload(data)
download(pointer, data)  # what a worker has not begun when its lease ends is refused
print("counting", flush=True)
input()
assert (download(pointer, data) == data).all()
print("ok")
""",
        prelude=PRELUDE,
    )
    assert process.stdin is not None
    assert share.worker.ask(f"revoke epoch={share.fields['epoch']}").startswith("ok")
    process.stdin.write("\n")
    process.stdin.flush()
    time.sleep(0.5)
    assert process.poll() is None
    give_again(share)
    out, errors = process.communicate(timeout=60)
    assert out == "ok\n", out + errors + share.logged()


def test_a_call_goes_on_though_the_next_lease_is_over_before_the_call_arrives(share: Share) -> None:
    """The network is slow: the worker takes the lease, which is over while the call is on its way."""
    share.write(resumes="1")
    process = share.start(
        """
start()
data = np.arange(1000)
pointer = upload(data)
print("counting", flush=True)
input()
assert (download(pointer, data) == data).all()
print("ok")
""",
        **emulated(Network(round_trip_us=1_000_000)),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "counting\n"
    assert share.worker.ask(f"revoke epoch={share.fields['epoch']}").startswith("ok")
    process.stdin.write("\n")
    process.stdin.flush()
    time.sleep(1.5)  # refused: it waits
    give_again(share)
    time.sleep(1)  # the worker has been asked for the lease; the call comes a second after that
    assert share.worker.ask(f"revoke epoch={share.fields['epoch']}").startswith("ok")
    time.sleep(1)
    give_again(share)
    out, errors = process.communicate(timeout=60)
    assert out == "ok\n", out + errors + share.logged()


def test_when_the_holder_gives_up_the_call_fails_and_says_why(share: Share) -> None:
    process = started(share, COUNTING)
    take_back(share)
    share.write(
        state="parked",
        generation=str(int(share.fields["generation"]) + 1),
        message="Project b needs it until tomorrow.",
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in errors
    assert "Project b needs it until tomorrow." in share.logged()


def test_an_interrupt_ends_the_waiting_and_cleaning_up_does_not_wait_again(share: Share) -> None:
    process = started(share, COUNTING)
    take_back(share)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)  # without end if it waited again
    assert "KeyboardInterrupt" in errors
    assert process.returncode in (1, -signal.SIGINT, 130)
