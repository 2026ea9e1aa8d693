"""Unmodified numba programs on a share, through client, wire, worker and software GPU."""

from __future__ import annotations

from tests.support.runtime_share import NUMBA, Share, share

__all__ = ["share"]


def test_numba_adds_reduces_and_times(share: Share) -> None:
    share.run(
        """
        x = np.arange(100_000, dtype=np.float32)
        out = np.zeros_like(x)
        add[(x.size + 255) // 256, 256](x, 2 * x, out)
        np.testing.assert_allclose(out, 3 * x)

        total = cuda.reduce(lambda a, b: a + b)
        assert total(np.arange(1000, dtype=np.float64)) == 499500

        stream, first, last = cuda.stream(), cuda.event(), cuda.event()
        on_device = cuda.to_device(x, stream=stream)
        first.record(stream)
        add[400, 256, stream](on_device, on_device, on_device)
        last.record(stream)
        last.synchronize()
        assert first.elapsed_time(last) >= 0
        np.testing.assert_allclose(on_device.copy_to_host(stream=stream), 2 * x)
        print("ok")
        """,
        NUMBA,
    )


def test_numba_slices_of_a_matrix_come_back(share: Share) -> None:
    share.run(
        """
        matrix = np.arange(64 * 48, dtype=np.int32).reshape(64, 48)
        there = cuda.to_device(matrix)
        assert there[3, 5] == matrix[3, 5]
        np.testing.assert_array_equal(there[:, 2].copy_to_host(), matrix[:, 2])
        there[10:20] = 7
        assert (there.copy_to_host()[10:20] == 7).all()
        print("ok")
        """,
        NUMBA,
    )


def test_what_a_kernel_prints_appears_in_the_program_s_output(share: Share) -> None:
    out = share.run(
        """
        @cuda.jit
        def speak():
            print("thread", cuda.threadIdx.x)
        speak[1, 3]()
        cuda.synchronize()
        print("ok")
        """,
        NUMBA,
    )
    assert sorted(out.splitlines()) == ["ok", "thread 0", "thread 1", "thread 2"]


def test_what_a_kernel_prints_is_whole_where_it_is_much(share: Share) -> None:
    out = share.run(
        """
        @cuda.jit
        def speak():
            print("thread", cuda.grid(1))
        speak[2048, 100]()
        cuda.synchronize()
        print("ok")
        """,
        NUMBA,
    )
    lines = out.splitlines()
    assert len(lines) == 2048 * 100 + 1
    assert lines[-1] == "ok"
    assert len(set(lines)) == len(lines)


def test_what_a_kernel_prints_is_whole_where_the_output_does_not_block(share: Share) -> None:
    share.run(
        """
        import fcntl, os, threading, time
        @cuda.jit
        def speak():
            print("thread", cuda.grid(1))
        output, (reading, writing) = os.dup(1), os.pipe()
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(writing, False)
        os.dup2(writing, 1)
        os.close(writing)
        parts = []
        def read():
            time.sleep(0.2)
            while part := os.read(reading, 4096):
                parts.append(part)
        reader = threading.Thread(target=read)
        reader.start()
        speak[20, 100]()
        cuda.synchronize()
        os.dup2(output, 1)
        reader.join()
        assert len(b"".join(parts).splitlines()) == 2000
        print("ok")
        """,
        NUMBA,
    )


def test_a_kernel_that_is_linked_and_allocates_on_the_device_heap(share: Share) -> None:
    # The linker's output is loaded again, so its length must be told from its bytes; and what malloc
    # returns lies outside the arena that the client places its memory in.
    out = share.run(
        """
        from numba import cuda

        @cuda.jit
        def kernel(out):
            turned = out[::-1].copy()
            for n in range(len(out)):
                out[n] = 10 * turned[n]

        numbers = cuda.to_device(np.arange(5.0))
        kernel[1, 1](numbers)
        assert numbers.copy_to_host().tolist() == [40, 30, 20, 10, 0]
        print("ok")
        """,
        NUMBA_CUDA_ENABLE_NRT="1",
    )
    assert out.endswith("ok\n")
