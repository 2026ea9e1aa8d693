"""A share of memory is kept to, by whatever way a program allocates, and what is freed tells nobody anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.worker_process import WorkerProcess, probe, software_driver
from tests.support.allocation_ways import WAYS
from tests.support.runtime_share import MIB, PRELUDE, SHARE_MIB, SOFTWARE, Share, share, share_of_a_worker
from tests.support.worker_state import used_bytes

__all__ = ["share"]  # the fixture


def used_mib(worker: WorkerProcess) -> int:
    return used_bytes(worker) // MIB


def test_no_way_to_allocate_passes_the_share(share: Share) -> None:
    share.run(
        f"""
        ways = (plain, asynchronous, pool, virtual, array, managed, mapped, loaded, library, graph, heap)
        for way in ways:
            assert way({SHARE_MIB} + 1)[0] == out_of_memory, way
        check(plain(room()))
        for way in ways:
            assert way(2)[0] == out_of_memory, way
        print("ok")
        """,
        PRELUDE + WAYS,
    )


@pytest.mark.parametrize("way", ["asynchronous", "virtual", "array", "library", "graph"])
def test_what_is_held_in_one_way_is_missing_for_every_other(share: Share, way: str) -> None:
    share.run(
        f"""
        held = []
        while True:
            answer = {way}(48)
            if answer[0] != 0:
                break
            held.append(answer)
        assert answer[0] == out_of_memory, answer
        assert 4 <= len(held) <= {SHARE_MIB} // 48, len(held)
        assert room() <= {SHARE_MIB} - 4 * 48, room()  # and cuMemGetInfo says so
        for other in (plain, array, loaded):
            assert other(room() + 1)[0] == out_of_memory, other
        check(cu.cuCtxSynchronize())
        print("ok")
        """,
        PRELUDE + WAYS,
    )
    assert 4 * 48 <= used_mib(share.worker) <= SHARE_MIB


def test_a_larger_heap_for_kernels_is_paid_for(share: Share) -> None:
    share.run(
        f"""
        assert heap(220)[0] == 0
        assert room() <= {SHARE_MIB} - 220
        assert plain(room() + 1)[0] == out_of_memory
        print("ok")
        """,
        PRELUDE + WAYS,
    )
    assert used_mib(share.worker) == 220


def test_what_is_given_back_is_there_again(share: Share) -> None:
    share.run(
        f"""
        before = room()
        for _ in range(3):
            one, two = check(loaded(80)), check(array(80))
            assert room() <= before - 160
            check(cu.cuModuleUnload(one))
            check(cu.cuArrayDestroy(two))
            check(cu.cuCtxSynchronize())
            assert room() == before
            # Memory that the client keeps for later allocations makes room for a module.
            check(cu.cuMemFree(check(plain({SHARE_MIB} - 8))))
            check(cu.cuModuleUnload(check(loaded(200))))
            check(cu.cuCtxSynchronize())
        print("ok")
        """,
        PRELUDE + WAYS,
    )


def test_the_reserve_for_the_context_belongs_to_nobody_else(tmp_path: Path) -> None:
    sharing = share_of_a_worker(tmp_path, context_reserve_mib=56)
    share = next(sharing)
    assert used_mib(share.worker) == 56
    share.run(
        f"""
        assert check(cu.cuMemGetInfo())[1] == ({SHARE_MIB} - 56) * MIB
        assert check(cu.cuDeviceTotalMem(0)) == ({SHARE_MIB} - 56) * MIB
        assert plain({SHARE_MIB} - 55)[0] == out_of_memory
        check(plain({SHARE_MIB} - 56))
        print("ok")
        """,
        PRELUDE + WAYS,
    )
    assert used_mib(share.worker) == SHARE_MIB
    sharing.close()


def test_a_share_without_room_for_the_context_is_refused_in_one_sentence(tmp_path: Path) -> None:
    from benchmarks.worker_process import WorkerError

    device = probe(software_driver(), SOFTWARE)[1][0]
    worker = WorkerProcess(
        tmp_path, software_driver(), [(device, 100, 64)], environment=SOFTWARE, context_reserve_mib=64
    )
    with pytest.raises(WorkerError, match="a share of 64 MiB has no room beside the 64 MiB"):
        worker.__enter__()


@pytest.fixture
def neighbours(tmp_path: Path) -> Iterator[tuple[Share, Share]]:
    """Two sessions on one device."""
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    sharings = [share_of_a_worker(folder) for folder in folders]
    yield next(sharings[0]), next(sharings[1])
    for sharing in sharings:
        sharing.close()


def test_a_program_that_wants_too_much_fails_by_itself(neighbours: tuple[Share, Share]) -> None:
    greedy, modest = neighbours
    steps = modest.start(
        """
        data = np.arange(1 << 18, dtype=np.uint32)
        pointer = upload(data)
        print("up", flush=True)
        for step in range(300):
            check(cu.cuMemsetD32(pointer, step, data.size))
            assert (download(pointer, data) == step).all()
        print("ok")
        """,
        PRELUDE + WAYS,
    )
    assert steps.stdout is not None
    assert steps.stdout.readline() == "up\n"
    greedy.run(
        """
        for way in (plain, asynchronous, pool, virtual, array, managed, mapped, loaded, library, graph):
            while way(40)[0] == 0:
                pass
        check(cu.cuCtxSynchronize())
        print("ok")
        """,
        PRELUDE + WAYS,
    )
    out, errors = steps.communicate(timeout=60)
    assert out == "ok\n", out + errors
    assert used_mib(modest.worker) <= 4


def test_nothing_of_a_neighbour_is_found_in_new_memory(neighbours: tuple[Share, Share]) -> None:
    """Beside one that still lives, and after it has freed its memory and ended."""
    writer, reader = neighbours
    search = """
        found = 0
        for n in range(3):
            pointers = [check(plain(60)), check(managed(20)), check(asynchronous(60)), check(virtual(20))][:3]
            for pointer, mib in zip(pointers, (60, 20, 60)):
                seen = np.empty(mib * MIB, np.uint8)
                check(cu.cuMemcpyDtoH(seen.ctypes.data, pointer, seen.nbytes))
                found += int((seen == 0xAB).sum())
                check(cu.cuMemFree(pointer))
            check(cu.cuCtxSynchronize())
        assert found == 0, found
        print("ok")
        """
    program = writer.start(
        """
        pointers = [check(plain(60)) for _ in range(4)]
        for pointer in pointers:
            check(cu.cuMemsetD8(pointer, 0xAB, 60 * MIB))
        check(cu.cuCtxSynchronize())
        print("up", flush=True)
        input()
        for pointer in pointers:
            check(cu.cuMemFree(pointer))
        check(cu.cuCtxSynchronize())
        print("ok")
        """,
        PRELUDE + WAYS,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "up\n"
    reader.run(search, PRELUDE + WAYS)
    out, errors = program.communicate("\n", timeout=60)
    assert out == "ok\n", out + errors
    reader.run(search, PRELUDE + WAYS)
    assert writer.worker.ask("stop") == "ok"
    reader.run(search, PRELUDE + WAYS)
