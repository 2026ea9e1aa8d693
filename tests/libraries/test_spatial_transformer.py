"""Spatial transformers of cuDNN: grids of affine maps and images that are read by them, and their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.libraries.cudnn import (
    BAD_PARAM,
    DATA_TYPES,
    NCHW,
    NHWC,
    NOT_SUPPORTED,
    SUCCESS,
    Placed,
    assert_close,
    call,
    descriptor,
    done,
    exact,
    factor,
    handle,
    integers,
    placed,
    random,
)
from tests.libraries.machine import Argument, Array, Machine, integer, pointer

DOUBLE: Final = np.dtype(np.float64)
SINGLE: Final = np.dtype(np.float32)
TYPES: Final = [SINGLE, DOUBLE, np.dtype(np.float16)]
BILINEAR: Final = 0
BEFORE: Final = 7.0
quickly = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def coordinates(count: int) -> Array:
    return np.linspace(-1, 1, count)


def grid_of(theta: Array, height: int, width: int) -> Array:
    """Of each image a map of two rows."""
    down, across = np.meshgrid(coordinates(height), coordinates(width), indexing="ij")
    points = np.stack([across, down, np.ones_like(across)], -1)
    made: Array = np.einsum("nij,hwj->nhwi", theta, points)
    return made


def places(grid: Array, x: Array) -> tuple[Array, Array]:
    """Rows and columns of x, in the precision of the grid."""
    number = np.float32 if grid.dtype == np.float16 else grid.dtype.type
    half = number(0.5)
    wide = grid.astype(number)
    down = (wide[..., 1] + number(1)) * number(x.shape[2] - 1) * half
    across = (wide[..., 0] + number(1)) * number(x.shape[3] - 1) * half
    return down.astype(np.float64), across.astype(np.float64)


def corners(grid: Array, x: Array) -> Iterator[tuple[Array, Array, Array, Array, Array, Array, Array]]:
    """Of the four elements around each point: rows, columns, which are inside, distances, and slopes."""
    down, across = places(grid, x)
    above, left = np.floor(down), np.floor(across)
    for below in (0, 1):
        for right in (0, 1):
            row, column = (above + below).astype(int), (left + right).astype(int)
            inside = (row >= 0) & (row < x.shape[2]) & (column >= 0) & (column < x.shape[3])
            vertical = np.where(below, down - above, 1 - (down - above))
            horizontal = np.where(right, across - left, 1 - (across - left))
            slopes = np.full_like(down, below * 2 - 1), np.full_like(down, right * 2 - 1)
            yield row * inside, column * inside, inside, vertical, horizontal, *slopes


def sampled(x: Array, grid: Array) -> Array:
    made = np.zeros((*x.shape[:2], *grid.shape[1:3]))
    for row, column, inside, vertical, horizontal, _, _ in corners(grid, x):
        for image in range(len(x)):
            values = exact(x)[image][:, row[image], column[image]]
            made[image] += values * (inside * vertical * horizontal)[image]
    return made


def sampled_gradients(x: Array, grid: Array, dy: Array) -> tuple[Array, Array]:
    """Of x and of the grid."""
    dx, dgrid = np.zeros(x.shape), np.zeros(grid.shape)
    for row, column, inside, vertical, horizontal, downward, rightward in corners(grid, x):
        for image in range(len(x)):
            for channel in range(x.shape[1]):
                part = exact(dy)[image, channel] * inside[image]
                np.add.at(
                    dx[image, channel],
                    (row[image], column[image]),
                    part * (vertical * horizontal)[image],
                )
                values = part * exact(x)[image, channel, row[image], column[image]]
                dgrid[image, ..., 0] += values * (rightward * vertical)[image] * (x.shape[3] - 1) / 2
                dgrid[image, ..., 1] += values * (downward * horizontal)[image] * (x.shape[2] - 1) / 2
    return dx, dgrid


@contextmanager
def transformer(machine: Machine, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Iterator[Argument]:
    with descriptor(machine, "SpatialTransformer") as made:
        kinds = integer(BILINEAR), integer(DATA_TYPES[dtype])
        done(
            machine,
            "cudnnSetSpatialTransformerNdDescriptor",
            made,
            *kinds,
            integer(len(shape)),
            integers(shape),
        )
        yield made


def made_grid(machine: Machine, function: str, given: Array, into: Array, shape: tuple[int, ...]) -> Array:
    """What a function of grids makes."""
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        of = stack.enter_context(transformer(machine, shape, given.dtype))
        places = stack.enter_context(machine.arrays(given, into))
        done(machine, f"cudnnSpatialTfGridGenerator{function}", cudnn, of, *map(pointer, places))
        return machine.get(places[1], into)


def forward(machine: Machine, x: Array, grid: Array, y: Array, beta: float, forms: tuple[int, int]) -> Array:
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        of = stack.enter_context(transformer(machine, y.shape, x.dtype))
        at_x, at_y = (
            stack.enter_context(placed(machine, array, form))
            for array, form in zip((x, y), forms, strict=True)
        )
        [at_grid] = stack.enter_context(machine.arrays(grid))
        done(
            machine, "cudnnSpatialTfSamplerForward", cudnn, of, factor(2, x.dtype), at_x.descriptor, at_x.data,
            pointer(at_grid), factor(beta, x.dtype), at_y.descriptor, at_y.data,
        )  # fmt: skip
        return at_y.result()


def backward(
    machine: Machine, x: Array, grid: Array, dy: Array, beta: float, forms: tuple[int, int]
) -> tuple[Array, Array]:
    """Both gradients; what is there before is ``BEFORE``."""
    dx, dgrid = np.full_like(x, BEFORE), np.full_like(grid, BEFORE)
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        of = stack.enter_context(transformer(machine, dy.shape, x.dtype))
        at_x, at_dy, at_dx = (
            stack.enter_context(placed(machine, array, form))
            for array, form in zip((x, dy, dx), (*forms, forms[0]), strict=True)
        )
        at_grid, at_dgrid = stack.enter_context(machine.arrays(grid, dgrid))
        done(
            machine, "cudnnSpatialTfSamplerBackward", cudnn, of, factor(2, x.dtype), at_x.descriptor, at_x.data,
            factor(beta, x.dtype), at_dx.descriptor, at_dx.data, factor(3, x.dtype), at_dy.descriptor, at_dy.data,
            pointer(at_grid), factor(2 * beta, x.dtype), pointer(at_dgrid),
        )  # fmt: skip
        return at_dx.result(), machine.get(at_dgrid, dgrid)


sizes = st.integers(1, 6)
problems = st.tuples(st.integers(1, 3), st.integers(1, 4), sizes, sizes, sizes, sizes)
layouts = st.tuples(*[st.sampled_from([NCHW, NHWC])] * 2)


def inputs(
    problem: tuple[int, ...], dtype: np.dtype[np.generic], reach: float = 1.3
) -> tuple[Array, Array, Array]:
    """An image, a grid that also leaves it, and what was there before."""
    images, channels, height, width, rows, columns = problem
    generator = np.random.default_rng(sum(problem))
    x = random(generator, (images, channels, height, width), dtype)
    grid = generator.uniform(-reach, reach, (images, rows, columns, 2)).astype(dtype)
    return x, grid, random(generator, (images, channels, rows, columns), dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@quickly
@given(images=st.integers(1, 3), height=st.integers(2, 9), width=st.integers(2, 9))
def test_a_grid_and_its_gradient(
    machine: Machine, dtype: np.dtype[np.generic], images: int, height: int, width: int
) -> None:
    generator = np.random.default_rng(images)
    theta = random(generator, (images, 2, 3), dtype)
    shape = images, 5, height, width
    grid = made_grid(machine, "Forward", theta, np.zeros((images, height, width, 2), dtype), shape)
    assert_close(grid, grid_of(exact(theta), height, width), 4)
    dgrid = random(generator, grid.shape, dtype)
    dtheta = made_grid(machine, "Backward", dgrid, np.zeros_like(theta), shape)
    basis = np.eye(6).reshape(6, 2, 3)
    wanted = [(exact(dgrid) * grid_of(one[None], height, width)).sum((1, 2, 3)) for one in basis]
    assert_close(dtheta, np.stack(wanted, -1).reshape(images, 2, 3), height * width)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@quickly
@given(problem=problems, forms=layouts, beta=st.sampled_from([0.0, 0.5]))
def test_elements_around_a_point_are_weighed(
    machine: Machine, dtype: np.dtype[np.generic], problem: tuple[int, ...], forms: tuple[int, int],
    beta: float,
) -> None:  # fmt: skip
    x, grid, y = inputs(problem, dtype)
    assert_close(forward(machine, x, grid, y, beta, forms), 2 * sampled(x, grid) + beta * exact(y), 4)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@quickly
@given(problem=problems, forms=layouts, beta=st.sampled_from([0.0, 0.5]))
def test_gradients_of_the_image_and_of_the_grid(
    machine: Machine, dtype: np.dtype[np.generic], problem: tuple[int, ...], forms: tuple[int, int],
    beta: float,
) -> None:  # fmt: skip
    x, grid, dy = inputs(problem, dtype)
    dx, dgrid = backward(machine, x, grid, dy, beta, forms)
    wanted_x, wanted_grid = sampled_gradients(x, grid, dy)
    assert_close(dx, 2 * wanted_x + beta * BEFORE, 16)
    assert_close(dgrid, 3 * wanted_grid + 2 * beta * BEFORE, 16)


@pytest.mark.parametrize("shape", [(1, 2, 200, 301), (4, 60, 9, 10)], ids=["points", "planes"])
def test_more_than_a_part(machine: Machine, shape: tuple[int, ...]) -> None:
    x, grid, dy = inputs((*shape[:2], 11, 12, *shape[2:]), SINGLE)
    assert_close(forward(machine, x, grid, dy, 0, (NCHW, NHWC)), 2 * sampled(x, grid), 4)
    dx, dgrid = backward(machine, x, grid, dy, 0, (NCHW, NCHW))
    wanted_x, wanted_grid = sampled_gradients(x, grid, dy)
    scale = shape[2] * shape[3]
    assert_close(dx, 2 * wanted_x, scale)
    assert_close(dgrid, 3 * wanted_grid, shape[1])
    theta = random(np.random.default_rng(3), (shape[0], 2, 3), SINGLE)
    whole = made_grid(machine, "Forward", theta, np.zeros_like(grid), shape)
    assert_close(whole, grid_of(exact(theta), *shape[2:]), 4)


def test_an_identity_reads_every_element(machine: Machine) -> None:
    """Also at the corners, which are exactly at the edge of what is inside."""
    x = random(np.random.default_rng(4), (2, 3, 5, 9), DOUBLE)
    theta = np.tile(np.eye(2, 3), (2, 1, 1))
    grid = made_grid(machine, "Forward", theta, np.zeros((2, 5, 9, 2)), x.shape)
    np.testing.assert_allclose(forward(machine, x, grid, x, 0, (NCHW, NCHW)), 2 * x, rtol=1e-14)


@pytest.mark.parametrize("far", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_a_point_that_is_nowhere_reads_zeros_and_has_no_gradient(machine: Machine, far: float) -> None:
    x, grid, dy = inputs((1, 2, 3, 4, 2, 2), SINGLE, reach=0.9)
    grid[0, 0, 1, 0] = grid[0, 1, 0, 1] = far
    inside = np.array([[True, False], [False, True]])
    y = forward(machine, x, grid, dy, 0, (NCHW, NCHW))
    assert np.array_equal(y != 0, np.broadcast_to(inside, y.shape))
    dx, dgrid = backward(machine, x, grid, dy, 0, (NCHW, NCHW))
    assert np.isfinite(dx).all()
    assert np.array_equal((dgrid != 0).all(-1)[0], inside)


def set_transformer(
    machine: Machine, of: Argument, sizes: tuple[int, ...], *, sampler: int = BILINEAR, data_type: int = 0
) -> int:
    kinds = integer(sampler), integer(data_type)
    return call(
        machine,
        "cudnnSetSpatialTransformerNdDescriptor",
        of,
        *kinds,
        integer(len(sizes)),
        integers(sizes),
    ).status


def test_wrong_settings(machine: Machine) -> None:
    with descriptor(machine, "SpatialTransformer") as of:
        assert set_transformer(machine, of, (1, 2, 3, 4), sampler=1) == BAD_PARAM
        assert set_transformer(machine, of, (1, 2, 3, 4), data_type=99) == BAD_PARAM
        assert set_transformer(machine, of, (1, 2, 0, 4)) == BAD_PARAM
        assert set_transformer(machine, pointer(0), (1, 2, 3, 4)) == BAD_PARAM
        answer = call(
            machine, "cudnnSetSpatialTransformerNdDescriptor", of, integer(0), integer(0), integer(4), pointer(0),
        )  # fmt: skip
        assert answer.status == BAD_PARAM


@pytest.mark.parametrize("direction", ["Forward", "Backward"])
def test_wrong_arguments_of_a_grid(machine: Machine, direction: str) -> None:
    shape = 1, 2, 3, 4
    function = f"cudnnSpatialTfGridGenerator{direction}"
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        of = stack.enter_context(transformer(machine, shape, SINGLE))
        theta, grid = map(pointer, stack.enter_context(machine.arrays(np.zeros(6), np.zeros(24))))
        nothing = pointer(0)
        for arguments in [
            (nothing, of, theta, grid), (cudnn, nothing, theta, grid), (cudnn, of, nothing, grid),
            (cudnn, of, theta, nothing),
        ]:  # fmt: skip
            assert call(machine, function, *arguments).status == BAD_PARAM
        unset = stack.enter_context(descriptor(machine, "SpatialTransformer"))
        assert call(machine, function, cudnn, unset, theta, grid).status == BAD_PARAM
        for sizes, data_type in [((1, 2, 3, 4, 5), 0), ((1, 2, 3), 0), (shape, 9), (shape, 4)]:
            assert set_transformer(machine, of, sizes, data_type=data_type) == SUCCESS
            assert call(machine, function, cudnn, of, theta, grid).status == NOT_SUPPORTED


def test_wrong_arguments_of_a_sampler(machine: Machine) -> None:
    x, grid, y = inputs((2, 3, 4, 5, 3, 2), SINGLE)
    with ExitStack() as stack:
        cudnn = stack.enter_context(handle(machine))
        of = stack.enter_context(transformer(machine, y.shape, SINGLE))
        at_x, at_y, narrow, fewer = (
            stack.enter_context(placed(machine, array)) for array in (x, y, x.astype(np.float16), x[:, :2])
        )
        at_grid = pointer(stack.enter_context(machine.arrays(grid))[0])
        nothing, one, zero = pointer(0), factor(1, SINGLE), factor(0, SINGLE)

        def sample(x: Placed = at_x, y: Placed = at_y, grid: Argument = at_grid) -> int:
            return call(
                machine, "cudnnSpatialTfSamplerForward", cudnn, of, one, x.descriptor, x.data, grid, zero,
                y.descriptor, y.data,
            ).status  # fmt: skip

        def gradient(dx: Placed = at_x, dgrid: Argument = at_grid, alpha: Argument = one) -> int:
            return call(
                machine, "cudnnSpatialTfSamplerBackward", cudnn, of, one, at_x.descriptor, at_x.data, zero,
                dx.descriptor, dx.data, alpha, at_y.descriptor, at_y.data, at_grid, zero, dgrid,
            ).status  # fmt: skip

        assert sample() == SUCCESS
        assert sample(narrow) == BAD_PARAM
        assert sample(fewer) == BAD_PARAM
        assert sample(y=at_x) == BAD_PARAM
        assert sample(grid=nothing) == BAD_PARAM
        assert gradient() == SUCCESS
        assert gradient(fewer) == BAD_PARAM
        assert gradient(narrow) == BAD_PARAM
        assert gradient(dgrid=nothing) == BAD_PARAM
        assert gradient(alpha=nothing) == BAD_PARAM
        assert machine.synchronize() == 0
