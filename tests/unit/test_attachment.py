"""`gpupool.attach` and `gpupool.gpu`: which attachments ask, which share, and what is refused before anybody is asked."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import gpupool
import pytest
from gpupool.client import lender
from gpupool.client.keeper import GivenUp
from gpupool.client.lender import AttachError
from gpupool.request.gpu_request import GpuRequest
from gpupool.request.option import RequestError
from gpupool.shares import Share

from jupyter_gpupool.kernel.arguments import parse_cell


class Lending:
    """In the place of a pool: notes who enters and leaves, and can refuse."""

    def __init__(self) -> None:
        self.wishes: list[GpuRequest] = []
        self.open: set[str] = set()
        self.refuses = False
        self.fails_at_the_end = False
        self.waits = threading.Event()
        self.waits.set()
        self.given_up = False

    def enter(self, wish: GpuRequest, scope: str, given_up: GivenUp) -> None:
        given_up.when(self._give_up)
        self.waits.wait(10)
        if self.refuses or given_up.is_set():
            raise AttachError("full", "no room")
        self.wishes.append(wish)
        self.open.add(scope)

    def _give_up(self) -> None:
        self.given_up = True
        self.waits.set()

    def leave(self, scope: str) -> None:
        self.open.remove(scope)
        if self.fails_at_the_end:
            raise AttachError("deferred", "a kernel failed")


@pytest.fixture
def lending() -> Iterator[Lending]:
    lends = Lending()
    lender.register(lends)
    yield lends
    lender.register(None)
    assert not lends.open, "a share was not given back"


def test_a_block_asks_and_gives_back(lending: Lending) -> None:
    with gpupool.attach("2.5GiB", n=2, wait="10m", type="H100|L*", filters=["node=n1"], project="a/b"):
        assert len(lending.open) == 1
    [wish] = lending.wishes
    assert wish == GpuRequest(
        Share.parse("2.5GiB"), 2, wait_seconds=600.0, project="a/b", filters=("name=*H100*|L*", "node=n1")
    )


@pytest.mark.parametrize(
    ("type", "condition"),
    [("H100", "name=*H100*"), ("H100*", "name=H100*"), ("?100", "name=?100"), ("A?|H100", "name=A?|*H100*")],
)
def test_a_type_with_a_wildcard_is_the_whole_name_as_in_a_cell(
    lending: Lending, type: str, condition: str
) -> None:
    with gpupool.attach(0.2, type=type):
        pass
    assert lending.wishes[0].filters == (condition,)
    assert parse_cell(f"0.2 --type {type}").filters == (condition,)


def test_a_type_that_is_no_name_is_refused_with_the_value(lending: Lending) -> None:
    with pytest.raises(ValueError, match="'H100;A100' is no type of GPU"):
        gpupool.attach(0.2, type="H100;A100")


@pytest.mark.parametrize(
    ("outer", "inner", "asks"),
    [
        ({"share": 0.3}, {"share": 0.2}, 1),
        ({"share": 0.3}, {"share": "30%"}, 1),
        ({"share": 0.3}, {"share": 0.4}, 2),
        ({"share": 0.3}, {"share": "1GiB"}, 2),
        ({"share": "2GiB"}, {"share": "1GiB"}, 1),
        ({"share": 0.3, "n": 2}, {"share": 0.3}, 1),
        ({"share": 0.3}, {"share": 0.3, "n": 2}, 2),
        ({"share": 0.3}, {"share": 0.1, "strict": True}, 2),
        ({}, {}, 1),
        ({"share": 0.3}, {}, 2),
    ],
)
def test_one_inside_another_asks_only_where_it_may_need_more(
    lending: Lending, outer: dict[str, Any], inner: dict[str, Any], asks: int
) -> None:
    with gpupool.attach(**outer), gpupool.attach(**inner):
        assert len(lending.wishes) == asks


def test_a_thread_asks_for_itself(lending: Lending) -> None:
    def inside() -> None:
        with gpupool.attach(0.2):
            pass

    with gpupool.attach(0.2):
        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
    assert len(lending.wishes) == 2


async def test_a_task_that_outlives_the_block_it_began_in_keeps_the_share(lending: Lending) -> None:
    over = asyncio.Event()

    async def inside() -> int:
        async with gpupool.attach(0.2):
            await over.wait()
            return len(lending.open)

    async with gpupool.attach(0.2):
        task = asyncio.create_task(inside())
        await asyncio.sleep(0)
    assert len(lending.wishes) == 1
    assert lending.open
    over.set()
    assert await task == 1


async def test_a_task_that_begins_after_the_block_asks_again(lending: Lending) -> None:
    over = asyncio.Event()

    async def inside() -> int:
        await over.wait()
        async with gpupool.attach(0.2):
            return len(lending.open)

    async with gpupool.attach(0.2):
        # It has the block's context, as every task has that of the place where it was made.
        task = asyncio.create_task(inside())
        await asyncio.sleep(0)
    over.set()
    assert (await task, len(lending.wishes)) == (1, 2)


async def test_a_task_that_is_cancelled_gives_up_the_wait(lending: Lending) -> None:
    lending.waits.clear()
    task = asyncio.create_task(gpupool.attach(0.2).__aenter__())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lending.given_up
    assert not lending.wishes


async def test_a_grant_that_crosses_the_cancellation_goes_back(lending: Lending) -> None:
    lending.waits.clear()
    lending._give_up = lambda: None  # type: ignore[method-assign]

    class Deaf(GivenUp):
        def is_set(self) -> bool:
            return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpupool.client.attachment.GivenUp", Deaf)
        task = asyncio.create_task(gpupool.attach(0.2).__aenter__())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    lending.waits.set()
    async with asyncio.timeout(10):
        while not lending.wishes or lending.open:
            await asyncio.sleep(0.01)


def test_a_refusal_is_an_error_and_the_body_never_runs(lending: Lending) -> None:
    lending.refuses = True
    ran = []

    @gpupool.gpu(0.2)
    def work() -> None:
        ran.append(1)

    with pytest.raises(AttachError, match="no room"):
        work()
    assert not ran


def test_work_that_failed_late_is_told_at_the_end_unless_the_block_failed_itself(lending: Lending) -> None:
    lending.fails_at_the_end = True
    with pytest.raises(AttachError, match="a kernel failed"), gpupool.attach(0.2):
        pass
    with pytest.raises(KeyError), gpupool.attach(0.2):
        raise KeyError


def test_a_decorated_function_is_what_it_was_and_takes_turns_with_itself(lending: Lending) -> None:
    @gpupool.gpu(0.2, wait=5)
    def power(base: int, *, exponent: int = 2) -> int:
        """Of a number."""
        return base**exponent if exponent < 3 else base * power(base, exponent=exponent - 1)

    assert power(3, exponent=4) == 81
    assert len(lending.wishes) == 1  # it calls itself under the share it has
    assert (power.__name__, power.__doc__) == ("power", "Of a number.")
    assert str(inspect.signature(power)) == "(base: 'int', *, exponent: 'int' = 2) -> 'int'"


async def test_a_coroutine_function_stays_one(lending: Lending) -> None:
    @gpupool.gpu(0.2)
    async def work() -> int:
        return len(lending.open)

    assert inspect.iscoroutinefunction(work)
    assert await work() == 1


def test_what_cannot_be_decorated_is_refused_with_a_reason() -> None:
    with pytest.raises(TypeError, match=r"generator .*numbers"):

        @gpupool.gpu(0.2)
        def numbers() -> Iterator[int]:
            yield 1

    with pytest.raises(TypeError, match="generator"):

        @gpupool.gpu(0.2)
        async def later() -> AsyncIterator[int]:
            yield 1

    with pytest.raises(TypeError, match="brackets"):

        @gpupool.gpu
        def bare() -> None: ...

    with pytest.raises(TypeError, match="Thing is none"):

        @gpupool.gpu(0.2)
        class Thing: ...


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"share": 1.7}, "1.7"),
        ({"share": "banana"}, "banana"),
        ({"share": True}, "True"),
        ({"share": 0}, "'0'"),
        ({"share": 0.2, "exclusive": True}, "0.2"),
        ({"n": 0}, "0"),
        ({"n": 1.5}, "1.5"),
        ({"nodes": "all"}, "all"),
        ({"wait": "soon"}, "soon"),
        ({"wait": -3}, "-3"),
        ({"wait": float("nan")}, "nan"),
        ({"duration": True}, "True"),
    ],
)
def test_an_argument_that_makes_no_sense_is_named_at_once(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError) as error:
        gpupool.attach(**arguments)
    assert named in str(error.value)
    assert error.value.reason == ("bad-share" if {"share", "n"} & set(arguments) else "bad-request")


def test_importing_gpupool_costs_nothing() -> None:
    code = (
        "import sys, gpupool; before = set(sys.modules); gpupool.attach(0.2);"
        "assert 'gpupool.client' not in before, before;"
        "sys.exit(str({'grpc', 'IPython', 'asyncio.events'} & before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "set()"
