"""Programs that no Jupyter server and no `gpupool run` holds a share for: `gpupool.attach` and `gpupool.gpu` in them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.support.attaching_program import PRELUDE
from tests.support.pool_node import FENCE_SECONDS, PoolAndNode, native_worker_is_built

pytestmark = [
    pytest.mark.skipif(not native_worker_is_built(), reason="needs the native build (`make build`)"),
]


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolAndNode]:
    with PoolAndNode(real_worker=True, gpus=1) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left(pool: PoolAndNode) -> Iterator[None]:
    """The share is free, the session is closed, and no keeper outlives its program."""
    yield
    pool.wait_free()
    pool.wait(lambda: not keepers(pool), 10, "the end of the keepers")
    pool.wait(lambda: not pool.worker_pids(), 10, "the end of the workers")


def keepers(pool: PoolAndNode) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "gpupool.client.program.keeper_process" in (process.info["cmdline"] or []):
            try:
                if process.environ().get("GPUPOOL_HOME") == str(pool.home):
                    found.append(process.pid)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
    return found


def started(pool: PoolAndNode, code: str, *before: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, sys.executable, "-c", PRELUDE + code],
        env=pool.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ran(pool: PoolAndNode, code: str, *before: str, status: int = 0) -> tuple[str, str]:
    process = started(pool, code, *before)
    out, error = process.communicate(timeout=60)
    assert process.returncode == status, error
    return out, error


def heard(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"it ended without saying {words!r}: {process.communicate()[1]}")


def test_a_program_has_the_gpu_in_its_blocks_only_and_its_memory_stays(pool: PoolAndNode) -> None:
    out, error = ran(
        pool,
        """
with gpupool.attach(0.2):
    at = make(7)
    [lease] = leases()
    say(lease["milli"], lease["label"], lease["mine"])
try:
    read(at)
except OSError as refused:
    say("refused", refused.errno)
with gpupool.attach("20%"):
    say("still", read(at))
say("leases", len(leases()))
""",
    )
    assert out.splitlines() == ["200 -c True", "refused 46", "still 7", "leases 0"]
    assert "gpupool.attach(0.2)" in error  # the way out


def test_after_an_interrupt_while_the_keeper_starts_the_next_block_has_one(pool: PoolAndNode) -> None:
    out, _ = ran(
        pool,
        """
from gpupool.client.keeper import Keeper, keeper
keeper().close()
first_word = Keeper._first_word
def interrupted(self, process):
    Keeper._first_word = first_word
    raise KeyboardInterrupt
Keeper._first_word = interrupted
try:
    with gpupool.attach(0.2):
        say("not reached")
except KeyboardInterrupt:
    say("interrupted")
with gpupool.attach(0.2):
    say(read(make(7)))
""",
    )
    assert out.splitlines() == ["interrupted", "7"]


def test_jax_would_find_what_answers_for_the_device(pool: PoolAndNode) -> None:
    """It imports all modules of `jax_plugins`, wherever they are in the path."""
    code = """
with gpupool.attach(0.2):
    from jax_plugins import gpupool_device
    say(gpupool_device.has_gpu())
"""
    out, _ = ran(pool, code)
    assert out.split() == ["True"]


def test_what_was_complete_when_the_share_went_is_so_without_one(pool: PoolAndNode) -> None:
    """PyTorch's allocator asks for its events first, and an error there ends the process at the next tensor."""
    out, error = ran(
        pool,
        """
event = ctypes.c_void_p()
with gpupool.attach(0.2):
    at = make(7)
    call("cuEventCreate", ctypes.byref(event), 0)
    call("cuEventRecord", event, None)
say("complete", cuda.cuEventQuery(event))
try:
    read(at)
except OSError as refused:
    say("refused", refused.errno)
with gpupool.attach(0.2):
    say("still", cuda.cuEventQuery(event), read(at))
    call("cuEventDestroy_v2", event)
""",
    )
    assert out.splitlines() == ["complete 0", "refused 46", "still 0 7"]
    assert error.count("No GPU is attached") == 1


def test_blocks_nest_overlap_and_grow_over_one_lease(pool: PoolAndNode) -> None:
    out, _ = ran(
        pool,
        """
def milli():
    return [lease["milli"] for lease in leases()]

with gpupool.attach(0.2):
    at = make(3)
    with gpupool.attach(0.1):
        say(milli())
    with gpupool.attach(0.4):
        say(milli())
    say(read(at))

results = []
inside, over = threading.Barrier(3), threading.Event()

@gpupool.gpu(0.2)
def work():
    inside.wait(20)
    results.append(read(at))
    over.wait(20)

threads = [threading.Thread(target=work) for _ in range(2)]
[thread.start() for thread in threads]
inside.wait(20)
say(len(leases()))
over.set()
[thread.join() for thread in threads]
say(results, len(leases()))

@gpupool.gpu(0.2)
async def task(n):
    await asyncio.sleep(0.1)
    return n + read(at)

async def main():
    async with gpupool.attach(0.3):
        say(await asyncio.gather(*map(task, range(3))))

asyncio.run(main())
say(task.__name__, len(leases()))
""",
    )
    assert out.splitlines() == ["[200]", "[400]", "3", "1", "[3, 3] 0", "[3, 4, 5]", "task 0"]


def test_a_block_that_fails_gives_back_and_its_error_is_the_one_to_see(pool: PoolAndNode) -> None:
    _, error = ran(
        pool,
        """
with gpupool.attach(0.2):
    make(1)
    raise SystemError("of the program")
""",
        status=1,
    )
    assert error.strip().splitlines()[-1] == "SystemError: of the program"


def test_a_program_that_is_killed_gives_its_share_back_at_once(pool: PoolAndNode) -> None:
    process = started(pool, 'with gpupool.attach(0.2): make(1); say("held"); time.sleep(60)')
    heard(process, "held")
    process.kill()
    process.communicate()
    pool.wait(pool.all_free, FENCE_SECONDS, "the share to be free")
    assert pool.last_lease()["reason"] == "exit"  # who is only not heard of any more is lost, after the fence


def test_what_ends_a_whole_job_leaves_the_program_its_gpu_until_it_has_saved_its_work(
    pool: PoolAndNode,
) -> None:
    """A service manager, and Slurm, tell all processes of a job to end."""
    process = started(
        pool,
        """
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
with gpupool.attach(0.2):
    at = make(7)
    print("made", flush=True)
    while not ended:
        time.sleep(0.05)
    time.sleep(1)
    print("saved", read(at), flush=True)
""",
    )
    heard(process, "made")
    for one in (*keepers(pool), process.pid):
        os.kill(one, signal.SIGTERM)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert out.split() == ["saved", "7"]


def test_a_program_that_keeps_pythons_lock_for_longer_than_a_lease_lives_keeps_its_share(
    pool: PoolAndNode,
) -> None:
    out, _ = ran(
        pool,
        f"""
with gpupool.attach(0.2):
    at = make(5)
    ctypes.PyDLL(None).usleep({int(1e6 * (FENCE_SECONDS + 2))})  # PyDLL does not give the lock away
    say(read(at))
""",
    )
    assert out.strip() == "5"


def test_an_interrupt_ends_the_wait_and_leaves_the_queue(pool: PoolAndNode) -> None:
    with gpu_is_full(pool):
        process = started(
            pool,
            """
try:
    gpupool.attach(0.2, wait="forever").__enter__()
except KeyboardInterrupt:
    say("interrupted")
""",
        )
        assert process.stderr is not None
        assert "waiting for a GPU at place 1" in process.stderr.readline()
        assert pool.queue_length() == 1
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=20)
        assert (process.returncode, out.strip()) == (0, "interrupted"), error
        assert pool.queue_length() == 0


def test_a_task_that_is_cancelled_leaves_the_queue_and_who_will_not_wait_is_told(pool: PoolAndNode) -> None:
    with gpu_is_full(pool):
        out, _ = ran(
            pool,
            """
try:
    with gpupool.attach(0.2, wait=0): say("never")
except gpupool.AttachError as error:
    say(error.reason)

from gpupool.client.keeper import keeper

async def main():
    task = asyncio.create_task(gpupool.attach(0.2, wait="1h").__aenter__())
    while not keeper().call("pool")["queue"]:
        await asyncio.sleep(0.1)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        say("cancelled")
    while keeper().call("pool")["queue"]:
        await asyncio.sleep(0.1)
    say("left the queue")

asyncio.run(main())
""",
        )
        assert out.splitlines() == ["full", "cancelled", "left the queue"]


def test_under_gpupool_run_the_share_of_the_command_must_be_large_enough(pool: PoolAndNode) -> None:
    run = (sys.executable, "-m", "gpupool.cli.main", "run", "-p", "0.3", "--")
    out, _ = ran(
        pool,
        """
with gpupool.attach(0.2):
    say(read(make(9)))
try:
    with gpupool.attach(0.5): say("never")
except gpupool.AttachError as error:
    say(error)
""",
        *run,
    )
    assert out.splitlines()[0] == "9"
    assert "0.3 GPU" in out
    assert "gpupool run -p 0.5" in out
    assert "never" not in out


def test_gpupool_run_in_a_cell_of_a_notebook_gives_its_command_the_share(pool: PoolAndNode) -> None:
    """The cell's kernel, or a program with a keeper, may have a share as well: the command has no part in that."""
    of_a_kernel = {
        "GPUPOOL_SESSION_PROCESS": "1",
        "GPUPOOL_SERVER_URL": "http://127.0.0.1:1/",
        "GPUPOOL_KERNEL_ID": "k1",
        "GPUPOOL_CAPABILITY_FILE": "/nowhere",
        "GPUPOOL_PROBLEM": "The setting is wrong.",
    }
    code = (
        "import os; from gpupool.client.lender import has_given_share; "
        f"print(has_given_share(), sorted({set(of_a_kernel)} & set(os.environ)))"
    )
    command = [sys.executable, "-m", "gpupool.cli.main", "run", "-p", "0.2", "--", sys.executable, "-c", code]
    environment = {**pool.environment, **of_a_kernel}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n"


def test_a_child_of_a_program_has_a_share_of_its_own(pool: PoolAndNode) -> None:
    child = PRELUDE + 'with gpupool.attach(0.1): say("child", read(make(2)))'
    out, _ = ran(
        pool,
        f"""
with gpupool.attach(0.2):
    at = make(1)
    subprocess.run([sys.executable, "-c", {child!r}], check=True)
    say("parent", read(at))
""",
    )
    assert out.splitlines() == ["child 2", "parent 1"]


def test_without_a_pool_it_is_said_where_it_was_looked_for(pool: PoolAndNode) -> None:
    environment = {**pool.environment, "GPUPOOL_ENDPOINT": "unix:/nowhere/pool.sock"}
    code = "import gpupool\nwith gpupool.attach(0.2): print('never')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "unix:/nowhere/pool.sock" in done.stderr.splitlines()[-1]
    assert "never" not in done.stdout


class gpu_is_full:
    """Somebody else has the whole device meanwhile."""

    def __init__(self, pool: PoolAndNode) -> None:
        self._pool = pool

    def __enter__(self) -> None:
        command = [
            sys.executable,
            "-m",
            "gpupool.cli.main",
            "run",
            "-p",
            "1",
            "--",
            "sh",
            "-c",
            "echo has; read x",
        ]
        self._process = subprocess.Popen(
            command,
            env=self._pool.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        heard(self._process, "has")

    def __exit__(self, *_: object) -> None:
        self._process.communicate("\n", timeout=20)


def test_the_program_is_not_given_grpc(pool: PoolAndNode) -> None:
    out, _ = ran(pool, 'with gpupool.attach(0.2): say(sorted({"grpc", "IPython"} & set(sys.modules)))')
    assert out.strip() == "[]"
    assert os.getpid() not in keepers(pool)


def test_a_reset_ends_the_session_and_the_next_block_begins_another(pool: PoolAndNode) -> None:
    out, _ = ran(
        pool,
        """
gpupool.reset()  # nothing yet: nothing to end
with gpupool.attach(0.2):
    at = make(7)
    say("before", read(at))
    gpupool.reset()
    say("leases", len(leases()))
try:
    read(at)
except OSError as refused:
    say("refused", refused.errno)
with gpupool.attach(0.2):
    say("after", read(make(3)))
""",
    )
    assert out.splitlines() == ["before 7", "leases 0", "refused 46", "after 3"]
