"""The session of a process: without a share, over several leases, with a dead or silent worker, in other processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from gpupool.client.native import native_file

from benchmarks.worker_process import boottime_ns
from tests.support.frozen import frozen
from tests.support.runtime_share import SHARE_MIB, Share, share

__all__ = ["share"]  # the fixture


def test_without_a_session_file_there_is_no_device() -> None:
    program = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    environment = {key: value for key, value in os.environ.items() if key != "GPUPOOL_SESSION_FILE"}
    environment["LD_LIBRARY_PATH"] = str(native_file("client", "libcuda.so.1").parent)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "100\n", done.stderr  # CUDA_ERROR_NO_DEVICE


def test_without_a_share_a_call_is_refused_and_after_attaching_it_works(share: Share) -> None:
    share.write(state="none", message="Press Attach in the sidebar.")
    share.run(
        """
        check(cu.cuInit(0))
        assert check(cu.cuDeviceGetCount()) == 0
        assert runtime.gpupool_attach() == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert "Press Attach" in message()
        session_file(state="attached")
        start()
        data = np.arange(1000)
        assert (download(upload(data), data) == data).all()
        assert counters()["state"] == "attached"
        print("ok")
        """
    )
    assert share.logged().count("Press Attach") == 1


def test_what_is_on_the_device_outlives_the_lease(share: Share) -> None:
    process = share.start(
        """
        start()
        data = np.arange(100_000)
        pointer = upload(data)
        print("up", flush=True)
        input()
        assert cu.cuMemcpyDtoH(data.ctypes.data, pointer, data.nbytes)[0] == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert cu.cuMemAlloc(1 << 20)[0] != 0
        print("down", flush=True)
        input()
        assert (download(pointer, data) == np.arange(100_000)).all()
        print("ok")
        """
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "up\n"
    epoch = share.worker.epoch
    assert share.worker.ask(f"revoke epoch={epoch}").startswith("ok")
    share.write(state="parked", generation="2", message="idle for 10 minutes")
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "down\n"
    deadline = boottime_ns() + 600 * 10**9
    answer = share.worker.ask(f"lease epoch={epoch + 1} deadline_ns={deadline} share=0:500:{SHARE_MIB}")
    assert answer.startswith("ok"), answer
    share.write(state="attached", generation="3", epoch=str(epoch + 1))
    out, errors = process.communicate("\n", timeout=60)
    assert out == "ok\n", out + errors
    assert "idle for 10 minutes" in share.logged()


def test_a_dead_worker_is_an_error_and_not_a_hang(share: Share) -> None:
    process = share.start(
        """
        start()
        pointer = upload(np.arange(10))
        print("up", flush=True)
        input()
        began = time.monotonic()
        for _ in range(3):
            assert cu.cuCtxSynchronize()[0] == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
            assert cu.cuMemcpyHtoD(pointer, np.arange(10).ctypes.data, 80)[0] == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert time.monotonic() - began < 30  # it might have been the network, for three seconds and not for sixty
        assert "lost" in message() and counters()["state"] == "lost"
        print("ok")
        """
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "up\n"
    assert share.worker.process is not None
    share.worker.process.kill()
    share.worker.process.wait()
    out, errors = process.communicate("\n", timeout=60)
    assert out == "ok\n", out + errors


def test_a_worker_that_accepts_and_stays_silent_delays_a_call_and_nothing_else(share: Share) -> None:
    attach = """
        import threading
        check(cu.cuInit(0))
        {before}
        answers = []
        def attach():
            answers.append(runtime.gpupool_attach())
            answers.append(message())
        thread = threading.Thread(target=attach)
        thread.start()
        time.sleep(0.5)
        for call in (counters, runtime.gpupool_detach):
            call()
            assert thread.is_alive(), call
        thread.join()
        assert answers[0] == cu.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
        assert "does not answer" in answers[1]
        print("ok")
        """
    lease = share.start(
        attach.format(
            before='start(); check(cu.cuMemAlloc(1)); print("up", flush=True); input()'
            "; runtime.gpupool_detach()"
        )
    )
    assert lease.stdout is not None and lease.stdin is not None and share.worker.process is not None
    processes = [lease]
    try:
        assert lease.stdout.readline() == "up\n"
        with frozen(share.worker.process.pid), socket.create_server(("127.0.0.1", 0)) as silent:
            lease.stdin.write("\n")
            lease.stdin.flush()
            share.write(address=f"127.0.0.1:{silent.getsockname()[1]}")
            processes.append(share.start(attach.format(before="pass")))
            for process in processes:
                out, errors = process.communicate(timeout=30)
                assert out == "ok\n", out + errors
    finally:
        for process in processes:
            process.kill()


def test_a_forked_child_is_not_initialised_and_leaves_its_parent_alone(share: Share) -> None:
    share.run(
        """
        start()
        data = np.arange(1000)
        pointer = upload(data)
        child = os.fork()
        if child == 0:
            answers = [cu.cuCtxSynchronize()[0], cu.cuMemAlloc(8)[0], cu.cuInit(0)[0]]
            os._exit(0 if all(a == cu.CUresult.CUDA_ERROR_NOT_INITIALIZED for a in answers) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert (download(pointer, data) == data).all()
        print("ok")
        """
    )


def test_a_second_process_is_told_that_the_session_serves_one(share: Share) -> None:
    share.run(
        """
        import subprocess

        start()
        data = np.arange(1000)
        pointer = upload(data)
        second = "from cuda.bindings import driver as cu; cu.cuInit(0); print(cu.cuDeviceGetCount())"
        child = subprocess.run([sys.executable, "-c", second], capture_output=True, text=True, timeout=60)
        assert child.stdout.endswith(" 0)\\n"), child  # it has no device
        assert (download(pointer, data) == data).all()
        print("ok")
        """
    )
    assert "a session serves one process" in share.log.read_text()


def test_a_process_without_the_session_asks_for_it_once_and_not_for_each_question(share: Share) -> None:
    share.run(
        """
        import subprocess

        start()
        second = (
            "from cuda.bindings import driver as cu; cu.cuInit(0)\\n"
            "for n in range(1, 101): cu.cuDeviceGetAttribute(cu.CUdevice_attribute(n), 0)"
        )
        subprocess.run([sys.executable, "-c", second], check=True, timeout=60)
        print("ok")
        """
    )
    assert share.log.read_text().count("a session serves one process") <= 3
