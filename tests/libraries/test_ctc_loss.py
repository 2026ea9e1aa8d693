"""The CTC loss of cuDNN against the sum over all ways through the steps, one by one."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries.conftest import WAYS
from tests.libraries.cudnn import BAD_PARAM, NOT_SUPPORTED, call, descriptor, done, handle, integers, placed
from tests.libraries.machine import Array, Machine, host, integer, out, pointer, wide

TYPE_NOT_SUPPORTED: Final = 3003
PROBABILITIES, SOFTMAX = 0, 1
ZEROS, SKIPPED = 0, 1
DETERMINISTIC, OTHER = 0, 1
BEFORE: Final = 7.0


@dataclass(frozen=True, slots=True)
class Problem:
    steps: int
    letters: int
    lengths: tuple[int, ...]  # of each image's steps
    labels: tuple[tuple[int, ...], ...]

    @property
    def numbers(self) -> Array:
        generator = np.random.default_rng(len(self.labels) + self.steps)
        numbers: Array = generator.standard_normal((self.steps, len(self.labels), self.letters)).astype(
            np.float32
        )
        return numbers


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    steps, letters = draw(st.integers(1, 5)), draw(st.integers(2, 4))
    images = draw(st.integers(1, 3))
    labels = draw(
        st.lists(
            st.lists(st.integers(1, letters - 1), max_size=3).map(tuple), min_size=images, max_size=images
        )
    )
    lengths = draw(st.lists(st.integers(0, steps), min_size=images, max_size=images))
    return Problem(steps, letters, tuple(lengths), tuple(labels))


def probabilities_of(numbers: Array) -> Array:
    exponentials = np.exp(numbers.astype(np.float64))
    result: Array = exponentials / exponentials.sum(-1, keepdims=True)
    return result


def spelled(way: tuple[int, ...]) -> tuple[int, ...]:
    """What a way through the steps says: repeated letters once, without blanks."""
    return tuple(letter for letter, _ in itertools.groupby(way) if letter != 0)


def wanted(problem: Problem, impossible: float) -> tuple[Array, Array]:
    """Losses and gradients. ``impossible``: each number of a gradient where the loss is infinite."""
    probabilities = probabilities_of(problem.numbers)
    losses, gradients = np.zeros(len(problem.labels)), np.zeros_like(probabilities)
    for image, (labels, steps) in enumerate(zip(problem.labels, problem.lengths, strict=True)):
        total, through = 0.0, np.zeros((problem.steps, problem.letters))
        for way in itertools.product(range(problem.letters), repeat=steps):
            if spelled(way) != labels:
                continue
            chance = float(np.prod([probabilities[step, image, letter] for step, letter in enumerate(way)]))
            total += chance
            for step, letter in enumerate(way):
                through[step, letter] += chance
        losses[image] = np.inf if total == 0 else -np.log(total)
        if total == 0:
            gradients[: problem.steps if impossible == BEFORE else steps, image] = impossible
        else:
            gradients[:steps, image] = probabilities[:steps, image] - through[:steps] / total
    return losses, gradients


def computed(
    machine: Machine, problem: Problem, *, normalization: int = SOFTMAX, version: str = "_v9", mode: int = ZEROS,
    algorithm: int = DETERMINISTIC, on_device: bool = False, steps_last: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    given_numbers = problem.numbers if normalization == SOFTMAX else probabilities_of(problem.numbers)
    numbers = given_numbers.astype(np.float32)
    labels = np.array([label for one in problem.labels for label in one] or [0], np.int32)
    label_lengths = np.array([len(one) for one in problem.labels], np.int32)
    lengths = np.array(problem.lengths, np.int32)
    losses = np.zeros(len(problem.labels), np.float32)
    gradients = np.full_like(numbers, BEFORE)
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        of = stack.enter_context(descriptor(machine, "CTCLoss"))
        longest = [integer(8)] if version in ("_v8", "_v9") else []
        rest = [] if version == "" else [integer(normalization), integer(mode)]
        done(machine, f"cudnnSetCTCLossDescriptor{version}", of, integer(0), *rest, *longest)
        x = stack.enter_context(placed(machine, numbers, int(steps_last)))
        dx = stack.enter_context(placed(machine, gradients, int(steps_last)))
        [into] = stack.enter_context(machine.arrays(losses))
        if on_device:
            places = stack.enter_context(machine.arrays(labels, label_lengths, lengths))
            done(
                machine, "cudnnGetCTCLossWorkspaceSize_v8", cudnn, integer(algorithm), of, x.descriptor, dx.descriptor,
                out(8),
            )  # fmt: skip
            done(
                machine, "cudnnCTCLoss_v8", cudnn, integer(algorithm), of, x.descriptor, x.data,
                *(pointer(place) for place in places), pointer(into), dx.descriptor, dx.data, wide(0), pointer(0),
            )  # fmt: skip
        else:
            arguments = [host(labels), host(label_lengths), host(lengths)]
            size = done(
                machine, "cudnnGetCTCLossWorkspaceSize", cudnn, x.descriptor, dx.descriptor, *arguments,
                integer(algorithm), of, out(8),
            ).number()  # fmt: skip
            [space] = stack.enter_context(machine.arrays(np.zeros(max(size, 1), np.uint8)))
            done(
                machine, "cudnnCTCLoss", cudnn, x.descriptor, x.data, *arguments, pointer(into), dx.descriptor, dx.data,
                integer(algorithm), of, pointer(space), wide(size),
            )  # fmt: skip
        assert machine.synchronize() == 0
        return machine.get(into, losses), dx.result()


def assert_same(found: tuple[Array, Array], right: tuple[Array, Array]) -> None:
    for one, other in zip(found, right, strict=True):
        np.testing.assert_allclose(one.astype(np.float64), other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("normalization", [PROBABILITIES, SOFTMAX])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problem=problems(), algorithm=st.sampled_from([DETERMINISTIC, OTHER]), steps_last=st.booleans())
def test_losses_and_gradients(
    machine: Machine, on_device: bool, normalization: int, problem: Problem, algorithm: int, steps_last: bool
) -> None:
    found = computed(
        machine,
        problem,
        normalization=normalization,
        algorithm=algorithm,
        on_device=on_device,
        steps_last=steps_last,
    )
    assert_same(found, wanted(problem, 0))


#: The second image's label needs a blank between its letters, and so one step more.
HOPELESS: Final = Problem(3, 3, (3, 2), ((1, 2), (1, 1)))


@pytest.mark.parametrize(
    ("version", "mode", "impossible"),
    [
        ("_v9", ZEROS, 0),
        ("_v9", SKIPPED, BEFORE),
        ("_v8", 1, np.nan),
        ("_v8", 0, 0),
        ("Ex", 1, np.nan),
        ("Ex", 0, 0),
    ],
)
def test_a_label_that_no_way_spells(machine: Machine, version: str, mode: int, impossible: float) -> None:
    losses, gradients = computed(machine, HOPELESS, version=version, mode=mode)
    right = wanted(HOPELESS, impossible)
    assert np.isinf(losses[1])
    assert_same((losses, gradients), right)


def test_the_oldest_settings_take_probabilities(machine: Machine) -> None:
    found = computed(machine, HOPELESS, normalization=PROBABILITIES, version="")
    assert_same(found, wanted(HOPELESS, 0))


def test_losses_alone(machine: Machine) -> None:
    problem = Problem(4, 3, (4, 3), ((1, 2), (2,)))
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        of = stack.enter_context(descriptor(machine, "CTCLoss"))
        done(machine, "cudnnSetCTCLossDescriptorEx", of, integer(0), integer(SOFTMAX), integer(0))
        x = stack.enter_context(placed(machine, problem.numbers))
        losses = np.zeros(2, np.float32)
        into, space = stack.enter_context(machine.arrays(losses, np.zeros(64, np.uint8)))
        done(
            machine, "cudnnCTCLoss", cudnn, x.descriptor, x.data, integers([1, 2, 2]), integers([2, 1]),
            integers([4, 3]), pointer(into), pointer(0), pointer(0), integer(0), of, pointer(space), wide(64),
        )  # fmt: skip
        np.testing.assert_allclose(machine.get(into, losses), wanted(problem, 0)[0], rtol=1e-5)


def test_settings_come_back(machine: Machine) -> None:
    with descriptor(machine, "CTCLoss") as of:
        done(machine, "cudnnSetCTCLossDescriptor_v9", of, integer(0), integer(1), integer(1), integer(30))
        for version, count in (("", 1), ("Ex", 3), ("_v8", 4), ("_v9", 4)):
            answer = done(machine, f"cudnnGetCTCLossDescriptor{version}", of, *[out(4)] * count)
            assert [answer.number(n) for n in range(count)] == [0, 1, 1, 30][:count]
        half, nonsense = (integer(2), integer(1), integer(0)), (integer(0), integer(9), integer(0))
        assert (
            call(machine, "cudnnSetCTCLossDescriptorEx", of, *half).status
            == TYPE_NOT_SUPPORTED
            > NOT_SUPPORTED
        )
        assert call(machine, "cudnnSetCTCLossDescriptorEx", of, *nonsense).status == BAD_PARAM


def test_wrong_arguments(machine: Machine) -> None:
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        of = stack.enter_context(descriptor(machine, "CTCLoss"))
        done(machine, "cudnnSetCTCLossDescriptorEx", of, integer(0), integer(1), integer(0))
        numbers = np.zeros((4, 2, 3), np.float32)
        x = stack.enter_context(placed(machine, numbers))
        narrow = stack.enter_context(placed(machine, numbers.astype(np.float16)))
        into, space = stack.enter_context(machine.arrays(np.zeros(2, np.float32), np.zeros(64, np.uint8)))

        def status(
            labels: list[int], label_lengths: list[int], lengths: list[int], size: int = 64, algorithm: int = 0,
            data: object = None,
        ) -> int:  # fmt: skip
            one = narrow if data is narrow else x
            return call(
                machine, "cudnnCTCLoss", cudnn, one.descriptor, one.data, integers(labels), integers(label_lengths),
                integers(lengths), pointer(into), pointer(0), pointer(0), integer(algorithm), of, pointer(space),
                wide(size),
            ).status  # fmt: skip

        assert status([1, 3], [1, 1], [4, 4]) == BAD_PARAM  # there is no letter 3
        assert status([1, -1], [1, 1], [4, 4]) == BAD_PARAM
        assert status([1, 2], [1, -1], [4, 4]) == BAD_PARAM
        assert status([1] * 300, [1, 256], [4, 4], 4096) == BAD_PARAM
        assert status([1, 2], [1, 1], [4, 5]) == BAD_PARAM
        assert status([1, 2], [1, 1], [4, 4], 8) == BAD_PARAM  # work space
        assert status([1, 2], [1, 1], [4, 4], algorithm=2) == BAD_PARAM
        assert status([1, 2], [1, 1], [4, 4], data=narrow) == TYPE_NOT_SUPPORTED


@pytest.mark.parametrize("machine_of_its_own", WAYS, indirect=True)
@pytest.mark.parametrize(
    ("labels", "label_lengths", "lengths"),
    [
        ([3, 1], [1, 1], [4, 4]),
        ([1, 1], [1, -1], [4, 4]),
        ([1, 1], [1, 1], [5, 4]),
        ([1, 1], [1 << 14, 1], [4, 4]),
    ],
    ids=["no letter", "length", "steps", "outside"],
)
def test_wrong_labels_in_device_memory_end_the_context(
    machine_of_its_own: Machine, labels: list[int], label_lengths: list[int], lengths: list[int]
) -> None:
    machine = machine_of_its_own
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        of = stack.enter_context(descriptor(machine, "CTCLoss"))
        done(machine, "cudnnSetCTCLossDescriptorEx", of, integer(0), integer(1), integer(0))
        x = stack.enter_context(placed(machine, np.zeros((4, 2, 3), np.float32)))
        arrays = (np.array(values, np.int32) for values in (labels, label_lengths, lengths))
        places = stack.enter_context(machine.arrays(*arrays, np.zeros(2, np.float32)))
        call(
            machine, "cudnnCTCLoss_v8", cudnn, integer(0), of, x.descriptor, x.data,
            *(pointer(place) for place in places), pointer(0), pointer(0), wide(0), pointer(0),
        )  # fmt: skip
        assert machine.synchronize() != 0
