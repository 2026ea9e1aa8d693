"""NCCL between processes, and between the devices of one: on the software GPU, alone and on a share."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gpupool.client.child_environment import environment, software_gpu_environment
from gpupool.client.native import native_directory
from numpy.typing import NDArray

from tests.support.runtime_share import share_of_a_worker

Array = NDArray[Any]
PROGRAM = Path(__file__).with_name("nccl_program.py")
#: ncclDataType_t of the types that are computed with.
TYPES: dict[Any, int] = {
    np.int8: 0,
    np.uint8: 1,
    np.int32: 2,
    np.uint32: 3,
    np.int64: 4,
    np.uint64: 5,
    np.float16: 6,
    np.float32: 7,
    np.float64: 8,
    ml_dtypes.bfloat16: 9,
}
SUM, PROD, MAX, MIN, AVG = range(5)
SUCCESS, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR = 0, 4, 5, 6


class Rank:
    """A process with one rank, or with all."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(native_directory() / "libraries")],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, *request: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the rank has ended with {self.process.wait()}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def ask(self, *request: Any) -> Any:
        self.tell(*request)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def call(
    name: str,
    send: Array | None,
    room: int | None,
    *numbers: int,
    of: int = 0,
    device: int = 0,
    in_place: bool = False,
) -> dict[str, Any]:
    content = None if send is None else send.tobytes().hex()
    return {
        "name": name, "send": content, "room": room, "numbers": numbers, "of": of, "device": device, "in_place": in_place
    }  # fmt: skip


def started(ranks: list[Rank], unique_id: str | None = None) -> list[Rank]:
    unique_id = unique_id or ranks[0].ask("id")
    for number, rank in enumerate(ranks):
        rank.tell("init", unique_id, len(ranks), number)
    assert [rank.answer() for rank in ranks] == [SUCCESS] * len(ranks)
    return ranks


def at_once(ranks: list[Rank], calls: list[list[dict[str, Any]]]) -> list[tuple[int, list[bytes]]]:
    for rank, own in zip(ranks, calls, strict=True):
        rank.tell("run", own)
    answers = [rank.answer() for rank in ranks]
    return [(status, [bytes.fromhex(text) for text in results]) for status, results in answers]


@pytest.fixture(scope="module", params=["alone", "pool"])
def variables(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """What a rank's environment has."""
    native = native_directory()
    if not (native / "libraries" / "libnccl.so.2").exists():
        pytest.skip("the native parts are not built (make build)")
    if request.param == "alone":
        yield software_gpu_environment(native, os.environ)
        return
    shares = share_of_a_worker(tmp_path_factory.mktemp("share"))
    try:
        yield environment(None, next(shares).file, os.environ, software=True)
    finally:
        next(shares, None)


@pytest.fixture(scope="module")
def alone() -> dict[str, str]:
    """The software GPU without a pool, with three devices."""
    return software_gpu_environment(native_directory(), os.environ) | {"GPUPOOL_SOFTGPU_DEVICES": "3"}


@pytest.fixture(scope="module", params=[1, 2, 3])
def ranks(
    request: pytest.FixtureRequest, variables: dict[str, str], alone: dict[str, str]
) -> Iterator[list[Rank]]:
    """Ranks that have met. On a pool rank 0 has a share of it and the others have a GPU each."""
    made = [Rank(variables if number == 0 else alone) for number in range(request.param)]
    try:
        yield started(made)
    finally:
        for rank in made:
            rank.kill()


@pytest.fixture
def pair(alone: dict[str, str]) -> Iterator[list[Rank]]:
    """Two ranks for one test."""
    made = [Rank(alone), Rank(alone)]
    try:
        yield started(made)
    finally:
        for rank in made:
            rank.kill()


def inputs(kind: Any, ranks: int, count: int) -> list[Array]:
    """Small numbers, whose sums and products every type holds exactly."""
    random = np.random.default_rng(count)
    return [random.integers(1, 5, count).astype(kind) for _ in range(ranks)]


def reduced(arrays: list[Array], operation: int) -> Array:
    stacked = np.stack(arrays).astype(np.float64)
    functions: Any = {SUM: np.sum, PROD: np.prod, MAX: np.max, MIN: np.min, AVG: np.mean}
    result = functions[operation](stacked, axis=0)
    kind = arrays[0].dtype
    if np.issubdtype(kind, np.integer):
        return np.asarray(np.trunc(result).astype(kind))
    return np.asarray(result.astype(np.float32).astype(kind) if kind.itemsize < 8 else result)


@pytest.mark.parametrize("operation", [SUM, PROD, MAX, MIN, AVG])
def test_all_reduce_is_numpys_reduction(ranks: list[Rank], operation: int) -> None:
    for kind, number in TYPES.items():
        arrays = inputs(kind, len(ranks), 37)
        expected = reduced(arrays, operation)
        for status, (result,) in at_once(
            ranks, [[call("ncclAllReduce", a, a.nbytes, a.size, number, operation)] for a in arrays]
        ):
            assert status == SUCCESS
            np.testing.assert_allclose(
                np.frombuffer(result, kind).astype(np.float64),
                expected.astype(np.float64),
                rtol=1e-6,
                err_msg=str(kind),
            )


def test_a_long_array_goes_in_pieces_and_in_place(ranks: list[Rank]) -> None:
    arrays = inputs(np.float32, len(ranks), 1_100_001)
    calls = [[call("ncclAllReduce", a, None, a.size, 7, SUM, in_place=True)] for a in arrays]
    for status, (result,) in at_once(ranks, calls):
        assert status == SUCCESS
        assert np.array_equal(np.frombuffer(result, np.float32), reduced(arrays, SUM))


def test_broadcast_and_reduce_have_a_root(ranks: list[Rank]) -> None:
    root = len(ranks) - 1
    arrays = inputs(np.int32, len(ranks), 19)
    for status, (result,) in at_once(
        ranks, [[call("ncclBroadcast", a, a.nbytes, a.size, 2, root)] for a in arrays]
    ):
        assert (status, result) == (SUCCESS, arrays[root].tobytes())
    answers = at_once(ranks, [[call("pncclReduce", a, a.nbytes, a.size, 2, SUM, root)] for a in arrays])
    assert {status for status, _ in answers} == {SUCCESS}
    assert answers[root][1][0] == reduced(arrays, SUM).tobytes()
    for status, (result,) in at_once(ranks, [[call("ncclBcast", a, None, a.size, 2, root)] for a in arrays]):
        assert (status, result) == (SUCCESS, arrays[root].tobytes())


def test_gathering_and_scattering_go_by_rank(ranks: list[Rank]) -> None:
    n, count = len(ranks), 11
    short = inputs(np.int64, n, count)
    wide = inputs(np.int64, n, count * n)
    parts = [array.reshape(n, count) for array in wide]
    whole = np.concatenate(short)
    for _, (result,) in at_once(ranks, [[call("ncclAllGather", a, whole.nbytes, count, 4)] for a in short]):
        assert result == whole.tobytes()
    answers = at_once(ranks, [[call("ncclReduceScatter", a, count * 8, count, 4, SUM)] for a in wide])
    assert [result for _, (result,) in answers] == [
        sum(part[i] for part in parts).tobytes() for i in range(n)
    ]
    answers = at_once(ranks, [[call("ncclAlltoAll", a, a.nbytes, count, 4)] for a in wide])
    expected = [np.concatenate([part[i] for part in parts]).tobytes() for i in range(n)]
    assert [result for _, (result,) in answers] == expected
    answers = at_once(ranks, [[call("ncclGather", a, whole.nbytes, count, 4, 0)] for a in short])
    assert answers[0][1][0] == whole.tobytes()
    answers = at_once(ranks, [[call("ncclScatter", a, count * 8, count, 4, 0)] for a in wide])
    assert [result for _, (result,) in answers] == [parts[0][i].tobytes() for i in range(n)]


def test_sends_and_receives_of_a_group_go_at_the_same_time(ranks: list[Rank]) -> None:
    n = len(ranks)
    arrays = inputs(np.float64, n, 530_000)
    calls = [
        [
            call("ncclSend", a, None, a.size, 8, (i + 1) % n),
            call("ncclRecv", None, a.nbytes, a.size, 8, (i - 1) % n),
            call("ncclAllReduce", a[:3], 24, 3, 8, MAX),
        ]
        for i, a in enumerate(arrays)
    ]
    for i, (status, results) in enumerate(at_once(ranks, calls)):
        assert status == SUCCESS
        assert results[1] == arrays[(i - 1) % n].tobytes()
        assert results[2] == reduced([a[:3] for a in arrays], MAX).tobytes()


@pytest.mark.parametrize("on_device", [False, True])
def test_a_reduction_may_have_a_factor_of_each_rank(ranks: list[Rank], on_device: bool) -> None:
    for kind, number in TYPES.items():
        arrays = inputs(kind, len(ranks), 37)
        factors = [np.array([rank + 2], kind) for rank in range(len(ranks))]
        made = [
            rank.ask("factor", 0, number, factor.tobytes().hex(), on_device)
            for rank, factor in zip(ranks, factors, strict=True)
        ]
        assert {status for status, _ in made} == {SUCCESS}
        calls = [
            [call("ncclAllReduce", a, a.nbytes, a.size, number, operation)]
            for a, (_, operation) in zip(arrays, made, strict=True)
        ]
        wanted = sum(a.astype(np.float64) * (rank + 2) for rank, a in enumerate(arrays))
        for status, (result,) in at_once(ranks, calls):
            assert status == SUCCESS
            found = np.frombuffer(result, kind).astype(np.float64)
            np.testing.assert_array_equal(found, wanted, err_msg=str(kind))
        for rank, (_, operation) in zip(ranks, made, strict=True):
            assert rank.ask("end_factor", 0, operation) == SUCCESS
            assert rank.ask("end_factor", 0, operation) == INVALID_ARGUMENT


def test_a_factor_is_of_one_type_and_one_communicator(pair: list[Rank]) -> None:
    a, (rank, other) = np.ones(4, np.float32), pair
    half, single, eight_bits = 6, 7, 10
    status, operation = rank.ask("factor", 0, single, np.float32(2).tobytes().hex(), False)
    assert status == SUCCESS
    assert operation > AVG
    for kind, reduction in ((half, operation), (single, operation + 1), (single, -1)):
        assert (
            rank.ask("run", [call("ncclAllReduce", a, a.nbytes, 1, kind, reduction)])[0] == INVALID_ARGUMENT
        )
    assert rank.ask("factor", 0, eight_bits, "40", False)[0] == INVALID_ARGUMENT
    assert other.ask("run", [call("ncclAllReduce", a, a.nbytes, 1, single, operation)])[0] == INVALID_ARGUMENT
    # Nothing of that has ended the communicator.
    answers = at_once(pair, [[call("ncclAllReduce", a, a.nbytes, 4, single, SUM)]] * 2)
    assert [(status, result) for status, (result,) in answers] == [(SUCCESS, (2 * a).tobytes())] * 2


def splits(ranks: list[Rank], wishes: list[list[list[int]]]) -> list[Any]:
    for rank, own in zip(ranks, wishes, strict=True):
        rank.tell("split", own)
    return [rank.answer() for rank in ranks]


@pytest.fixture
def three(variables: dict[str, str], alone: dict[str, str]) -> Iterator[list[Rank]]:
    """Three ranks for one test; on a pool rank 0 has a share of it."""
    made = [Rank(variables), Rank(alone), Rank(alone)]
    try:
        yield started(made)
    finally:
        for rank in made:
            rank.kill()


def test_ranks_of_one_color_are_a_communicator_in_the_order_of_keys(three: list[Rank]) -> None:
    ranks, none = three, -1
    assert splits(ranks, [[[0, 7, 5]], [[0, 3, 0]], [[0, 7, 1]]]) == [[SUCCESS, [True]]] * 3
    assert [rank.ask("ask", "ncclCommCount", 1)[1] for rank in ranks] == [2, 1, 2]
    assert [rank.ask("ask", "ncclCommUserRank", 1)[1] for rank in ranks] == [1, 0, 0]
    arrays = inputs(np.float32, 3, 11)
    calls = [[call("ncclAllGather", a, 4 * 22, 11, 7, of=1)] for a in arrays]
    calls[1][0]["room"] = 4 * 11
    results = [result for _, (result,) in at_once(ranks, calls)]
    both = arrays[2].tobytes() + arrays[0].tobytes()
    assert results == [both, arrays[1].tobytes(), both]
    # The parent goes on, and may be split again: equal keys are in the order of ranks.
    assert splits(ranks, [[[0, 0, 2]], [[0, none, 0]], [[0, 0, 2]]]) == [
        [SUCCESS, [True]], [SUCCESS, [False]], [SUCCESS, [True]]
    ]  # fmt: skip
    assert [ranks[number].ask("ask", "ncclCommUserRank", 2)[1] for number in (0, 2)] == [0, 1]
    whole = at_once(ranks, [[call("ncclAllReduce", a, a.nbytes, 11, 7, SUM)] for a in arrays])
    assert {result for _, (result,) in whole} == {reduced(arrays, SUM).tobytes()}
    # A part outlives the whole.
    for rank in ranks:
        assert rank.ask("end", "ncclCommDestroy", 0) == SUCCESS
    again = at_once(ranks, [[call("ncclAllReduce", a, a.nbytes, 11, 7, SUM, of=1)] for a in arrays])
    assert again[0][1][0] == reduced([arrays[0], arrays[2]], SUM).tobytes()


def test_several_splits_of_a_group_and_of_several_ranks_in_one_process(alone: dict[str, str]) -> None:
    rank = Rank(alone)
    try:
        assert rank.ask("init_all", 3) == SUCCESS
        wishes = [[0, 1, 0], [1, 1, 0], [2, 2, 0], [0, 4, 2], [1, 4, 1], [2, 4, 0]]
        assert rank.ask("split", wishes) == [SUCCESS, [True] * 6]
        assert [rank.ask("ask", "ncclCommCount", number)[1] for number in range(3, 9)] == [2, 2, 1, 3, 3, 3]
        assert [rank.ask("ask", "ncclCommUserRank", number)[1] for number in range(3, 9)] == [
            0,
            1,
            0,
            2,
            1,
            0,
        ]
        assert [rank.ask("ask", "ncclCommCuDevice", number)[1] for number in range(3, 9)] == [0, 1, 2] * 2
    finally:
        rank.kill()


def test_a_split_without_a_rank_that_has_gone_is_a_remote_error(pair: list[Rank]) -> None:
    pair[1].kill()
    assert pair[0].ask("split", [[0, 0, 0]]) == [REMOTE_ERROR, [False]]
    assert pair[0].ask("ask", "ncclCommGetAsyncError", 0) == [SUCCESS, REMOTE_ERROR]


def test_wrong_colors(pair: list[Rank]) -> None:
    assert pair[0].ask("split", [[0, -2, 0]]) == [INVALID_ARGUMENT, [False]]


def test_a_communicator_knows_its_numbers(ranks: list[Rank]) -> None:
    for number, rank in enumerate(ranks):
        assert rank.ask("ask", "ncclCommCount", 0) == [SUCCESS, len(ranks)]
        assert rank.ask("ask", "ncclCommUserRank", 0) == [SUCCESS, number]
        assert rank.ask("ask", "ncclCommCuDevice", 0) == [SUCCESS, 0]
        assert rank.ask("ask", "ncclCommGetAsyncError", 0) == [SUCCESS, SUCCESS]


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("ncclAllReduce", (1, 12, SUM)),
        ("ncclAllReduce", (1, -1, SUM)),
        ("ncclAllReduce", (1, 7, 5)),
        ("ncclBroadcast", (1, 7, 9)),
        ("ncclReduce", (1, 7, SUM, -1)),
        ("ncclAllReduce", (1, 10, SUM)),
    ],
)
def test_a_wrong_argument_is_refused_at_once(ranks: list[Rank], name: str, numbers: tuple[int, ...]) -> None:
    assert ranks[0].ask("run", [call(name, np.zeros(4), 32, *numbers)])[0] == INVALID_ARGUMENT


def test_one_thread_does_all_ranks_of_a_group(alone: dict[str, str]) -> None:
    rank = Rank(alone)
    try:
        assert rank.ask("init_all", 3) == SUCCESS
        arrays = inputs(np.float32, 3, 1000)
        calls = [
            call("ncclAllReduce", a, a.nbytes, a.size, 7, SUM, of=i, device=i) for i, a in enumerate(arrays)
        ]
        status, results = rank.ask("run", calls)
        assert status == SUCCESS
        assert [bytes.fromhex(result) for result in results] == [reduced(arrays, SUM).tobytes()] * 3
        assert rank.ask("init_all", 4) == INVALID_ARGUMENT
        assert rank.ask("end", "ncclCommDestroy", 0) == SUCCESS
        assert rank.ask("end", "ncclCommDestroy", 0) == INVALID_ARGUMENT
    finally:
        rank.kill()


def test_a_peer_that_dies_ends_the_communicator(pair: list[Rank]) -> None:
    pair[0].tell("run", [call("ncclAllReduce", np.zeros(4), 32, 4, 8, SUM)])
    pair[1].kill()
    assert pair[0].answer()[0] == REMOTE_ERROR
    assert pair[0].ask("ask", "ncclCommGetAsyncError", 0) == [SUCCESS, REMOTE_ERROR]
    assert pair[0].ask("end", "ncclCommAbort", 0) == SUCCESS


def test_who_does_not_wait_learns_of_a_dead_peer_too(pair: list[Rank]) -> None:
    pair[1].kill()
    assert pair[0].ask("ask", "ncclCommGetAsyncError", 0) == [SUCCESS, REMOTE_ERROR]


def test_an_abort_ends_a_call_that_waits(pair: list[Rank]) -> None:
    pair[0].ask("later", 0.3, "ncclCommAbort", 0)
    assert pair[0].ask("run", [call("ncclAllReduce", np.zeros(4), 32, 4, 8, SUM)])[0] == INVALID_USAGE


def test_an_abort_ends_a_call_that_waits_for_its_stream(pair: list[Rank]) -> None:
    began = time.monotonic()
    pair[0].ask("later", 0.3, "ncclCommAbort", 0)
    assert pair[0].ask("run_held", [call("ncclAllReduce", np.zeros(4), 32, 4, 8, SUM)])[0] == INVALID_USAGE
    assert time.monotonic() - began < 30  # what stands in the stream would hold it for a minute


def test_ranks_that_disagree_on_a_size_are_told(pair: list[Rank]) -> None:
    answers = at_once(pair, [[call("ncclAllReduce", np.zeros(n), 64, n, 8, SUM)] for n in (4, 5)])
    assert INVALID_USAGE in {status for status, _ in answers}
    assert {status for status, _ in answers} <= {INVALID_USAGE, REMOTE_ERROR}


def test_who_lacks_the_secret_is_no_rank(alone: dict[str, str]) -> None:
    made = [Rank(alone), Rank(alone)]
    try:
        unique_id = bytes.fromhex(made[0].ask("id"))
        port = struct.unpack_from(">H", unique_id, 10)[0]
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            # A greeting of the right size for rank 0, with another secret.
            stranger.sendall(bytes(16) + struct.pack("<ii", 0, 2) + unique_id[4:36])
            stranger.settimeout(10)
            assert stranger.recv(1) == b""
        started(made, unique_id.hex())
    finally:
        for rank in made:
            rank.kill()
