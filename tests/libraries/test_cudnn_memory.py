"""Operands of cuDNN's calls outside the device's memory end the work as those of any kernel do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import numpy as np
import pytest

from tests.libraries.conftest import WAYS
from tests.libraries.convolution_reference import Geometry
from tests.libraries.cudnn import Placed, descriptor, done, factor, handle, placed
from tests.libraries.machine import Argument, Machine, integer, pointer
from tests.libraries.test_convolution import described
from tests.libraries.test_spatial_transformer import transformer

ILLEGAL_ADDRESS: Final = 700
SINGLE: Final = np.dtype(np.float32)
ONE: Final = factor(1, SINGLE)
NOWHERE: Final = pointer(0x1000)
Call = Callable[[ExitStack, Machine, Argument, Placed], None]


def convolution(stack: ExitStack, machine: Machine, cudnn: Argument, x: Placed) -> None:
    of = stack.enter_context(described(machine, Geometry((1, 1), (1, 1), (1, 1)), SINGLE))
    w = stack.enter_context(placed(machine, np.ones((4, 4, 3, 3), SINGLE), kind="Filter"))
    done(
        machine, "cudnnConvolutionForward", cudnn, ONE, x.descriptor, x.data, w.descriptor, w.data, of, integer(1),
        pointer(0), pointer(0), ONE, x.descriptor, NOWHERE,
    )  # fmt: skip


def addition(_: ExitStack, machine: Machine, cudnn: Argument, x: Placed) -> None:
    done(machine, "cudnnAddTensor", cudnn, ONE, x.descriptor, NOWHERE, ONE, x.descriptor, x.data)


def reduction(stack: ExitStack, machine: Machine, cudnn: Argument, x: Placed) -> None:
    sums = stack.enter_context(placed(machine, np.ones((1, 4, 1, 1), SINGLE)))
    done(
        machine,
        "cudnnConvolutionBackwardBias",
        cudnn,
        ONE,
        x.descriptor,
        NOWHERE,
        ONE,
        sums.descriptor,
        sums.data,
    )


def normalisation(stack: ExitStack, machine: Machine, cudnn: Argument, x: Placed) -> None:
    of = stack.enter_context(placed(machine, np.ones((1, 4, 1, 1), SINGLE)))
    done(
        machine, "cudnnBatchNormalizationForwardInference", cudnn, integer(1), ONE, ONE, x.descriptor, x.data, x.descriptor,
        x.data, of.descriptor, of.data, of.data, of.data, NOWHERE, ("d", 0.1),
    )  # fmt: skip


def softmax(_: ExitStack, machine: Machine, cudnn: Argument, x: Placed) -> None:
    kind = [integer(1), integer(1)]
    done(machine, "cudnnSoftmaxForward", cudnn, *kind, ONE, x.descriptor, x.data, ONE, x.descriptor, NOWHERE)


def pooling(stack: ExitStack, machine: Machine, cudnn: Argument, x: Placed) -> None:
    of = stack.enter_context(descriptor(machine, "Pooling"))
    done(machine, "cudnnSetPooling2dDescriptor", of, *[integer(value) for value in (0, 0, 1, 1, 0, 0, 1, 1)])
    done(machine, "cudnnPoolingForward", cudnn, of, ONE, x.descriptor, NOWHERE, ONE, x.descriptor, x.data)


def ctc_loss(stack: ExitStack, machine: Machine, cudnn: Argument, _: Placed) -> None:
    of = stack.enter_context(descriptor(machine, "CTCLoss"))
    done(machine, "cudnnSetCTCLossDescriptorEx", of, integer(0), integer(1), integer(0))
    x = stack.enter_context(placed(machine, np.ones((4, 2, 3), SINGLE)))
    labels = pointer(stack.enter_context(machine.arrays(np.ones(2, np.int32)))[0])
    done(
        machine, "cudnnCTCLoss_v8", cudnn, integer(0), of, x.descriptor, x.data, labels, labels, NOWHERE, x.data,
        pointer(0), pointer(0), pointer(0), pointer(0),
    )  # fmt: skip


def spatial_transformer(stack: ExitStack, machine: Machine, cudnn: Argument, x: Placed) -> None:
    of = stack.enter_context(transformer(machine, x.array.shape, SINGLE))
    done(
        machine, "cudnnSpatialTfSamplerForward", cudnn, of, ONE, x.descriptor, x.data, NOWHERE, ONE, x.descriptor, x.data,
    )  # fmt: skip


@pytest.mark.parametrize("machine_of_its_own", WAYS, indirect=True)
@pytest.mark.parametrize(
    "wrong",
    [convolution, addition, reduction, normalisation, softmax, pooling, ctc_loss, spatial_transformer],
)
def test_an_operand_outside_the_memory_is_an_illegal_address(
    machine_of_its_own: Machine, wrong: Call
) -> None:
    machine = machine_of_its_own
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        x = stack.enter_context(placed(machine, np.ones((2, 4, 5, 5), SINGLE)))
        wrong(stack, machine, cudnn, x)
        assert machine.synchronize() == ILLEGAL_ADDRESS
        assert machine.synchronize() == ILLEGAL_ADDRESS  # as after any kernel's
