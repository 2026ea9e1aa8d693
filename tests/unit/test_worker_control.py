"""Lines of the worker's control socket: what is read, what is refused, what a late answer cannot do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gpupool.engines.records import DeviceGrant
from gpupool.node.control import (
    Applied,
    ClientConnected,
    ControlChannel,
    ControlError,
    Fenced,
    Notice,
    WorkerStats,
    parse_notice,
)
from hypothesis import given
from hypothesis import strategies as st

STATS = (
    "stats epoch=8 state=attached client=1 device_ns=1000 kernels=2 calls=3 posts=4 asks=5 ask_ns=6 bytes_in=7 "
    "bytes_out=8 mem=0:100:200,1:300:400 last_submit_ns=9 in_flight=1"
)


def test_a_stats_line_is_read_whole() -> None:
    assert parse_notice(STATS) == WorkerStats(
        epoch=8, state="attached", client=True, device_ns=1000, kernels=2, calls=3, posts=4, asks=5, ask_ns=6,
        bytes_in=7, bytes_out=8, memory_used=(100, 300), memory_peak=(200, 400), last_submit_ns=9, in_flight=True,
        park_obstacle="other", move_obstacle="other",
    )  # fmt: skip


def test_other_news_and_answers_are_told_apart() -> None:
    assert parse_notice("client connected=0") == ClientConnected(False)
    assert parse_notice("fenced epoch=8") == Fenced(8)
    assert parse_notice("ok epoch=8") is None
    assert parse_notice("something new x=1") is None


def test_a_stats_line_tells_where_the_memory_is_and_what_keeps_it_there() -> None:
    stats = parse_notice(STATS + " place=host park=ok move=arrays enforcement=soft")
    assert isinstance(stats, WorkerStats)
    assert (stats.place, stats.park_obstacle, stats.move_obstacle) == ("host", "", "arrays")
    assert stats.enforcement == "soft"


def test_a_stats_line_tells_what_runs_and_what_ended_the_session() -> None:
    stats = parse_notice(
        STATS + " work=draining kernel=ns::forever<float> work_ms=14000 failed=700 failed_kernel=bad"
    )
    assert isinstance(stats, WorkerStats)
    assert (stats.work, stats.kernel, stats.work_ms) == ("draining", "ns::forever<float>", 14000)
    assert (stats.failure, stats.failed_kernel) == (700, "bad")


@pytest.mark.parametrize("more", ["", " work=none", " work=dancing kernel=x work_ms=5", " work="])
def test_without_work_under_way_nothing_is_told_of_it(more: str) -> None:
    stats = parse_notice(STATS + more)
    assert isinstance(stats, WorkerStats)
    assert (stats.work, stats.kernel, stats.work_ms, stats.failure) == ("", "", 0, 0)


@pytest.mark.parametrize("name", ["a;b", "x" * 81, "a\x1b[2J", ""])
def test_what_is_no_name_of_a_kernel_is_not_passed_on(name: str) -> None:
    stats = parse_notice(STATS + f" work=running kernel={name} work_ms=5 failed=700 failed_kernel={name}")
    assert isinstance(stats, WorkerStats)
    assert (stats.work, stats.kernel, stats.failed_kernel) == ("running", "", "")


def test_memory_of_a_worker_that_does_not_know_parking_stays_where_it_is() -> None:
    stats = parse_notice(STATS)
    assert isinstance(stats, WorkerStats)
    assert (stats.place, stats.park_obstacle, stats.move_obstacle) == ("device", "other", "other")


@pytest.mark.parametrize(
    "line",
    [
        STATS + " place=nowhere",
        STATS + " park=A",
        STATS + " enforcement=",
        STATS + " work=running work_ms=-1",
        STATS + " work=running work_ms=99999999999999999999",
        STATS + " failed=10000",
        STATS + " failed=x",
        STATS.replace("epoch=8", "epoch=-8"),
        STATS.replace("epoch=8", "epoch=99999999999999999999"),
        STATS.replace("attached", "happy"),
        STATS.replace("0:100:200", "0:100"),
        STATS.replace("1:300", "7:300"),
        STATS.replace("0:100:200", ",".join(f"{i}:1:1" for i in range(80))),
        "fenced epoch=x",
        "stats",
    ],
)
def test_malformed_news_is_an_error(line: str) -> None:
    with pytest.raises(ControlError):
        parse_notice(line)


@given(st.text(st.characters(max_codepoint=127), max_size=200))
def test_any_line_is_news_an_answer_or_an_error(line: str) -> None:
    for candidate in (line, f"stats {line}", f"stats state=parked {line}"):
        try:
            parse_notice(candidate)
        except ControlError:
            continue


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def worker(
    path: Path, serve: Serve, seconds: float = 5.0
) -> AsyncIterator[tuple[ControlChannel, list[Notice]]]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)
        writer.close()

    server = await asyncio.start_unix_server(handle, path)
    notices: list[Notice] = []
    channel = await ControlChannel.connect(path, notices.append, answer_seconds=seconds)
    try:
        yield channel, notices
    finally:
        await channel.close()
        server.close()


async def test_news_between_a_command_and_its_answer_does_not_answer_it(tmp_path: Path) -> None:
    seen = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readline())
        writer.write(f"{STATS}\nfenced epoch=7\nok epoch=8\n".encode())
        seen.append(await reader.readline())
        writer.write(f"{STATS.replace('calls=3', 'calls=33')}\n".encode())
        seen.append(await reader.readline())
        writer.write(b"refused epoch=8 reason=in-use used_mib=77\n")
        await reader.read()

    devices = (DeviceGrant(4, "u", 200, 1587), DeviceGrant(2, "v", 200, 1500))
    async with worker(tmp_path / "s", serve) as (channel, notices):
        assert await channel.lease(8, 12345, devices) == Applied(True)
        await channel.stats()
        assert isinstance(notices[-1], WorkerStats)
        assert notices[-1].calls == 33
        assert await channel.lease(8, 12346) == Applied(False, "in-use", used_mib=77)
    # Shares are named by the place in which the client sees the devices.
    assert seen[0] == b"lease epoch=8 deadline_ns=12345 share=0:200:1587,1:200:1500\n"


async def test_moving_memory_may_take_longer_than_other_answers(tmp_path: Path) -> None:
    seen = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (
            b"ok epoch=8 bytes=4096\n",
            b"refused epoch=9 reason=resume-failed why=out-of-memory\n",
        ):
            seen.append(await reader.readline())
            await asyncio.sleep(0.3)
            writer.write(answer)
        await reader.read()

    async with worker(tmp_path / "s", serve, 0.1) as (channel, _):
        assert await channel.park(8) == Applied(True, bytes=4096)
        refused = await channel.lease(9, 12345, onto={0: "a" * 32})
        assert refused == Applied(False, "resume-failed why=out-of-memory")
    assert seen[1] == b"lease epoch=9 deadline_ns=12345 device=0:" + b"a" * 32 + b"\n"


async def test_a_worker_can_be_stopped_while_it_moves_memory(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"park epoch=8\n"
        begun.set()
        assert await reader.readline() == b"stop\n"
        writer.write(b"ok\n")  # as a worker does, which is no word about its memory
        await reader.read()

    async with worker(tmp_path / "s", serve, 0.1) as (channel, _):
        parking = asyncio.create_task(channel.park(8))
        await begun.wait()
        stopping = asyncio.create_task(channel.stop())
        with pytest.raises(ControlError, match="stopped"):
            await parking
        # Its connection is there still, and takes no further command.
        with pytest.raises(ControlError, match="stopped"):
            await channel.revoke(8)
        with pytest.raises(ControlError, match="did not stop"):
            await stopping


async def test_a_worker_that_does_not_answer_costs_its_connection(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with worker(tmp_path / "s", serve, 0.1) as (channel, _):
        with pytest.raises(ControlError, match="did not answer 'revoke'"):
            await channel.revoke(8)
        with pytest.raises(ControlError):
            await channel.revoke(8)


@pytest.mark.parametrize("line", [b"x" * 10_000 + b"\n", b"\xff\xff\n", b"stats state=happy\n", b""])
async def test_what_is_not_the_protocol_ends_the_connection_and_the_command(
    tmp_path: Path, line: bytes
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(line)

    async with worker(tmp_path / "s", serve) as (channel, _):
        with pytest.raises(ControlError, match="closed"):
            await channel.revoke(8)


async def test_a_socket_path_longer_than_the_system_allows_is_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 80) / ("e" * 80)
    folder.mkdir(parents=True)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"ok epoch=1\n")

    short = tmp_path / "s"
    async with worker(short, serve):
        short.rename(folder / "control.sock")
        channel = await ControlChannel.connect(folder / "control.sock", lambda notice: None)
        assert (await channel.revoke(1)).ok
        await channel.close()


async def test_a_revocation_may_be_answered_later_than_other_commands(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await asyncio.sleep(0.3)
        writer.write(b"ok epoch=8\n")
        await reader.read()

    async with worker(tmp_path / "control.sock", serve, seconds=0.05) as (channel, _):
        assert await channel.revoke(8) == Applied(True)
