"""Which calls wait for the worker, which do not, and how they are counted."""

from __future__ import annotations

import json
import time

from tests.support.frozen import frozen
from tests.support.runtime_share import NUMBA, Share, share

__all__ = ["share"]  # the fixture


def test_creating_things_and_launching_needs_no_round_trip(share: Share) -> None:
    share.run(
        """
        x = cuda.to_device(np.ones(1000, dtype=np.float32))
        add[4, 256](x, x, x)
        cuda.synchronize()
        import ctypes, json
        runtime = ctypes.CDLL("libcuda.so.1")
        def asks():
            text = ctypes.create_string_buffer(1 << 16)
            runtime.gpupool_counters(text, len(text), 0)
            return json.loads(text.value)["asks"]
        before = asks()
        stream, event = cuda.stream(), cuda.event()
        for _ in range(100):
            y = cuda.device_array(1000, np.float32)
            add[4, 256, stream](x, x, y)
            event.record(stream)
            stream.wait(event) if hasattr(stream, "wait") else event.wait(stream)
        assert asks() == before
        stream.synchronize()
        assert asks() == before + 1
        print("ok")
        """,
        NUMBA,
    )


def test_a_lone_post_reaches_the_worker_without_a_further_call(share: Share) -> None:
    process = share.start(
        """
        start()
        pointer = check(cu.cuMemAlloc(16))
        for _ in range(100):
            check(cu.cuCtxSynchronize())
            time.sleep(0.01)  # so that the thread that sends posts sleeps
            check(cu.cuMemsetD8(pointer, 0, 16))
        check(cu.cuCtxSynchronize())
        print("ready", flush=True)
        input()
        check(cu.cuMemsetD8(pointer, 1, 16))
        print("posted", flush=True)
        input()
        print("ok")
        """
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    before = int(share.worker.stats()["posts"])
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "posted\n"
    deadline = time.monotonic() + 60
    while int(share.worker.stats()["posts"]) == before:
        assert time.monotonic() < deadline, "the post was not sent"
        time.sleep(0.02)
    out, errors = process.communicate("\n", timeout=60)
    assert out == "ok\n", out + errors


def test_a_stream_that_is_known_to_be_done_is_not_asked_for(share: Share) -> None:
    """What .item() does: an asynchronous copy to the host, then a synchronization that has nothing left to wait for."""
    out = share.run(
        """
        start()
        data = np.arange(1000)
        pointer, out = upload(data), np.empty_like(data)
        stream, other = check(cu.cuStreamCreate(0)), check(cu.cuStreamCreateWithPriority(0, -1))

        def asked(before):
            after = counters()["asks_by_name"].get("cuStreamSynchronize", [0])[0]
            return after - before, after
        def copy():
            check(cu.cuMemcpyDtoHAsync(out.ctypes.data, pointer, out.nbytes, stream))

        n, total = asked(0)
        copy(); check(cu.cuStreamSynchronize(stream))
        n, total = asked(total); assert n == 0, n
        assert (out == data).all()
        check(cu.cuStreamSynchronize(other))
        n, total = asked(total); assert n == 0, n  # it was never given anything
        check(cu.cuMemsetD8Async(pointer, 0, 8, other)); copy(); check(cu.cuStreamSynchronize(other))
        n, total = asked(total); assert n == 1, n
        copy(); check(cu.cuMemsetD8Async(pointer, 0, 8, stream)); check(cu.cuStreamSynchronize(stream))
        n, total = asked(total); assert n == 1, n
        copy(); check(cu.cuStreamSynchronize(stream)); check(cu.cuStreamSynchronize(stream))
        n, total = asked(total); assert n == 0, n
        assert "cuCtxGetStreamPriorityRange" not in counters()["asks_by_name"]
        print("ok")
        """
    )
    assert out


def test_counters_name_the_calls_that_waited(share: Share) -> None:
    out = share.run(
        """
        start()
        data = np.arange(100_000)
        pointer = upload(data)
        download(pointer, data)
        for n in range(3):
            download(pointer, data[:1])
        check(cu.cuCtxSynchronize())
        text = json.dumps(counters())
        print(text)
        print("ok")
        """
    )
    counters = json.loads(out.splitlines()[-2])
    assert counters["asks_by_name"]["cuMemcpyDtoH_v2"][0] == 4
    assert counters["asks_by_name"]["cuCtxSynchronize"][0] == 1
    assert counters["copies_to_host"] == [3, 0, 1, 0]
    assert (counters["bytes_to_device"], counters["bytes_from_device"]) == (800_000, 800_024)
    assert counters["calls"] == counters["posts"] + counters["asks"]
    assert counters["worker"]["memory_used"][0] > 0
    assert counters["software"] is True


def test_counters_and_drain_return_in_time_when_the_worker_does_not(share: Share) -> None:
    process = share.start(
        """
        start()
        data = np.arange(1000)
        pointer = upload(data)
        check(cu.cuCtxSynchronize())
        print("up", flush=True)
        input()
        assert counters()["worker"] is None
        began = time.monotonic()
        assert runtime.gpupool_drain(300) == cu.CUresult.CUDA_ERROR_NOT_READY
        assert time.monotonic() - began > 0.25
        print("waited", flush=True)
        input()
        assert (download(pointer, data) == data).all()  # the late answers are not taken for this one
        assert counters()["worker"]["memory_used"][0] > 0
        print("ok")
        """
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "up\n"
    assert share.worker.process is not None
    with frozen(share.worker.process.pid):
        process.stdin.write("\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    out, errors = process.communicate("\n" if answer else None, timeout=60)
    assert answer == "waited\n", errors
    assert out == "ok\n", out + errors
