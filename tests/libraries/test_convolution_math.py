"""How NVIDIA's cuDNN is asked for convolutions: with the program's precision, and by a deterministic algorithm."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import ml_dtypes
import numpy as np
import pytest
from gpupool.client.child_environment import environment

from tests.libraries import cudnn_graphs as graphs
from tests.libraries.conftest import machine_of
from tests.libraries.convolution_reference import Geometry
from tests.libraries.cudnn import NCHW, NHWC, SUCCESS, done, factor, handle, placed
from tests.libraries.machine import Machine, integer, out, pointer
from tests.libraries.test_convolution import DIRECTIONS, convolved, described, drawn
from tests.libraries.test_cudnn_backend import graphs_on
from tests.support.runtime_share import share_of_a_worker

#: cudnnMathType_t.
ANY, TENSOR_CORES, CONVERTED, NO_TENSOR_CORES = range(4)
#: cudnnBackendNumericalNote_t.
TENSOR_CORE_NOTE: Final = 0
PLAIN: Final = Geometry((0, 0), (1, 1), (1, 1))
SHAPES: Final = ((1, 2, 5, 5), (3, 2, 3, 3))
SINGLE: Final = np.dtype(np.float32)
#: How many plans a worker keeps, and how many of them go together.
KEPT_PLANS, ENDED_AT_ONCE = 4096, 64


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """The file into which the stand-in writes each convolution."""
    return tmp_path / "convolutions"


@pytest.fixture
def recorded_machine(tmp_path: Path, record: Path) -> Iterator[Machine]:
    """A program on a share whose worker gives operations to a stand-in for NVIDIA's cuDNN, which has no graphs."""
    yield from machine_beside("recording_cudnn.c", tmp_path, record)


@pytest.fixture
def graphs_machine(tmp_path: Path, record: Path) -> Iterator[Machine]:
    """The same, of one that has."""
    yield from machine_beside("recording_graphs.c", tmp_path, record)


@contextmanager
def graphs_with(tmp_path: Path, record: Path, **settings: str) -> Iterator[Machine]:
    """The same, where the stand-in and the software GPU are told more by the worker's environment."""
    machines = machine_beside("recording_graphs.c", tmp_path, record, **settings)
    try:
        yield next(machines)
    finally:
        next(machines, None)


def machine_beside(stand_in: str, tmp_path: Path, record: Path, **settings: str) -> Iterator[Machine]:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    source = Path(__file__).with_name(stand_in)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", libraries / "libcudnn.so.9", source], check=True)
    shares = share_of_a_worker(
        tmp_path, GPUPOOL_MATH_LIBRARIES=str(libraries), RECORDED_CONVOLUTIONS=str(record), **settings
    )
    try:
        share = next(shares)
        yield from machine_of(environment(None, share.file, {}, software=True))
    finally:
        next(shares, None)


def lines(machine: Machine, record: Path) -> list[list[str]]:
    assert machine.synchronize() == SUCCESS
    return [line.split() for line in record.read_text().splitlines()]


@pytest.mark.parametrize("math", [ANY, TENSOR_CORES, CONVERTED, NO_TENSOR_CORES])
def test_a_call_keeps_the_programs_math_type(recorded_machine: Machine, record: Path, math: int) -> None:
    arrays = drawn(1, *SHAPES, PLAIN, np.dtype(np.float32))
    for direction in DIRECTIONS:
        convolved(recorded_machine, direction, arrays, PLAIN, NCHW, math=math)
    assert [line[:2] for line in lines(recorded_machine, record)] == [
        [direction, str(math)] for direction in DIRECTIONS
    ]


def test_the_algorithm_is_deterministic_and_as_small_as_can_be(
    recorded_machine: Machine, record: Path
) -> None:
    arrays = drawn(1, *SHAPES, PLAIN, np.dtype(np.float32))
    for direction in DIRECTIONS:
        convolved(recorded_machine, direction, arrays, PLAIN, NCHW)
    assert [int(line[2]) for line in lines(recorded_machine, record)] == [1, 1, 4]


@pytest.mark.parametrize(
    ("filter_shape", "groups"), [((3, 2, 1, 1), 1), ((2, 1, 3, 3), 2)], ids=["1x1", "by channel"]
)
def test_a_filter_that_lies_in_both_formats_at_once_has_that_of_the_tensors(
    recorded_machine: Machine, record: Path, filter_shape: tuple[int, ...], groups: int
) -> None:
    geometry = Geometry((0, 0), (1, 1), (1, 1), groups)
    arrays = drawn(1, (1, 2, 5, 5), filter_shape, geometry, np.dtype(np.float32))
    for form in (NCHW, NHWC):
        for direction in DIRECTIONS:
            convolved(recorded_machine, direction, arrays, geometry, form)
    assert [int(line[3]) for line in lines(recorded_machine, record)] == [NCHW] * 3 + [NHWC] * 3


@pytest.mark.parametrize(
    ("dtype", "math", "engine"),
    [
        (np.float32, ANY, 4),
        (np.float32, TENSOR_CORES, 4),
        (np.float32, CONVERTED, 1),
        (np.float32, NO_TENSOR_CORES, 6),
        (np.float16, NO_TENSOR_CORES, 4),
    ],
)
def test_an_engine_of_a_graph_is_deterministic_precise_small_and_to_be_had(
    graphs_machine: Machine, record: Path, dtype: type, math: int, engine: int
) -> None:
    arrays = drawn(1, *SHAPES, PLAIN, np.dtype(dtype))
    for _ in range(2):  # the second time by the plan that is kept
        for direction in DIRECTIONS:
            convolved(graphs_machine, direction, arrays, PLAIN, NCHW, math=math)
    assert lines(graphs_machine, record) == [[direction, str(engine)] for direction in DIRECTIONS] * 2


def forward(machine: Machine, times: int) -> None:
    arrays = drawn(1, *SHAPES, PLAIN, SINGLE)
    for _ in range(times):
        convolved(machine, "Forward", arrays, PLAIN, NCHW)


def of_plans(plans: Path, what: str) -> list[int]:
    """The numbers of plans that were "executed", or have "ended", in order."""
    found = [line.split() for line in plans.read_text().splitlines()]
    return [int(number) for happened, number in found if happened == what]


def test_plans_that_are_not_taken_end_at_once(tmp_path: Path, record: Path) -> None:
    plans = tmp_path / "plans"
    with graphs_with(tmp_path, record, RECORDED_PLANS=str(plans)) as machine:
        forward(machine, 2)
        assert lines(machine, record) == [["Forward", "4"]] * 2
        assert of_plans(plans, "executed") == [2, 2]
        assert of_plans(plans, "ended") == [0, 1]


def test_a_plan_has_less_memory_where_there_is_less(tmp_path: Path, record: Path) -> None:
    with graphs_with(tmp_path, record, GPUPOOL_SOFTGPU_MEMORY_MIB="100") as machine:
        forward(machine, 2)
        assert lines(machine, record) == [["Forward", "5"]] * 2


@pytest.mark.parametrize(
    ("failure", "engine"),
    [({"NOTES_FAIL": "4"}, 5), ({"HEURISTIC_FAILS": "3"}, 4)],
    ids=["notes", "heuristic"],
)
def test_what_the_library_does_not_tell_is_done_without(
    tmp_path: Path, record: Path, failure: dict[str, str], engine: int
) -> None:
    with graphs_with(tmp_path, record, **failure) as machine:
        forward(machine, 1)
        assert lines(machine, record) == [["Forward", str(engine)]]


@pytest.mark.parametrize(("status", "second"), [(4000, ["4"]), (3000, ["0", "1", "0"])])
def test_a_graph_that_failed_is_tried_again_if_it_may_do(
    tmp_path: Path, record: Path, status: int, second: list[str]
) -> None:
    """Until then the older functions do it."""
    with graphs_with(tmp_path, record, FIRST_GRAPH_FAILS=str(status)) as machine:
        forward(machine, 2)
        assert lines(machine, record) == [["Forward", "0", "1", "0"], ["Forward", *second]]


def test_a_plan_that_is_refused_when_it_is_executed_gives_way(tmp_path: Path, record: Path) -> None:
    plans = tmp_path / "plans"
    with graphs_with(tmp_path, record, EXECUTION_FAILS="3000", RECORDED_PLANS=str(plans)) as machine:
        forward(machine, 2)
        assert lines(machine, record) == [["Forward", "0", "1", "0"]] * 2
        assert of_plans(plans, "executed") == [2]


def test_of_too_many_plans_those_of_graphs_stay_and_no_capture_is_disturbed(
    tmp_path: Path, record: Path
) -> None:
    plans = tmp_path / "plans"
    x, w, y = drawn(1, *SHAPES, PLAIN, SINGLE)
    room = {"GPUPOOL_SOFTGPU_MEMORY_MIB": "4096"}  # each graph has what its operations work in
    with graphs_with(tmp_path, record, RECORDED_PLANS=str(plans), **room) as machine, ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        how = stack.enter_context(described(machine, PLAIN, SINGLE))
        at_x, at_y = (stack.enter_context(placed(machine, array)) for array in (x, y))
        at_w = stack.enter_context(placed(machine, w, kind="Filter"))
        stream = pointer(machine.driver("cuStreamCreate", out(8), integer(1)).number())
        assert machine.synchronize() == SUCCESS
        done(machine, "cudnnSetStream", cudnn, stream)

        def convolve(number: int) -> None:
            """Each factor has a plan of its own."""
            done(
                machine, "cudnnConvolutionForward", cudnn, factor(number, SINGLE), at_x.descriptor, at_x.data,
                at_w.descriptor, at_w.data, how, integer(1), pointer(0), pointer(0), factor(0, SINGLE),
                at_y.descriptor, at_y.data,
            )  # fmt: skip

        def capture(number: int) -> None:
            assert machine.driver("cuStreamBeginCapture_v2", stream, integer(0)).status == SUCCESS
            convolve(number)
            assert machine.driver("cuStreamEndCapture", stream, out(8)).status == SUCCESS

        capture(1)
        for number in range(2, KEPT_PLANS + 1):
            convolve(number)
        capture(KEPT_PLANS + 1)
        assert machine.synchronize() == SUCCESS
        executed = of_plans(plans, "executed")
        assert len(set(executed)) == KEPT_PLANS + 1
        assert set(of_plans(plans, "ended")).isdisjoint(executed)
        convolve(KEPT_PLANS + 2)
        assert machine.synchronize() == SUCCESS
        ended = set(of_plans(plans, "ended")) & set(executed)
        assert ended == set(executed[1 : 1 + ENDED_AT_ONCE])


@pytest.mark.parametrize(
    ("dtype", "engines"),
    [
        (np.float32, [([TENSOR_CORE_NOTE], ANY), ([], NO_TENSOR_CORES)]),
        (np.float16, [([], TENSOR_CORES)]),
        (ml_dtypes.bfloat16, [([], TENSOR_CORES)]),
    ],
)
def test_an_engine_uses_tensor_cores_for_single_precision_only_where_it_says_so(
    recorded_machine: Machine, record: Path, dtype: type, engines: list[tuple[list[int], int]]
) -> None:
    arrays = drawn(1, *SHAPES, PLAIN, np.dtype(dtype))
    with graphs_on(recorded_machine) as made, recorded_machine.arrays(*arrays) as addresses:
        tensors = [made.tensor(array, NCHW, number) for number, array in enumerate(arrays, 1)]
        convolution = made.convolution(PLAIN, np.dtype(dtype))
        graph = made.unfinished_graph(made.operation(graphs.FORWARD, convolution, tensors))
        assert made.finalize(graph) == SUCCESS
        configurations = made.configurations(graph)
        found = [made.notes(made.engine(configuration)) for configuration in configurations]
        for configuration in configurations:
            plan = made.plan_of(configuration)
            assert made.execute(plan, dict(enumerate(addresses, 1))) == SUCCESS
    maths = [int(line[1]) for line in lines(recorded_machine, record)]
    assert list(zip(found, maths, strict=True)) == engines
