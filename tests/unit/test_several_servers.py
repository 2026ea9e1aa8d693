"""Several servers of one pool, as callers name them and go from one to the next; and when a standby takes over."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import grpc
import grpc.aio
import pytest
from gpupool.client.credentials import TokenCredentials, hub_token
from gpupool.client.endpoint import EndpointError, is_secure, parse_endpoints, resolve_endpoint
from gpupool.client.errors import GpupoolError
from gpupool.client.pool import PoolClient
from gpupool.client.servers import HEARD_SECONDS, NOT_LEADER, Patience, ServerRing
from gpupool.client.types import LeaseRequest
from gpupool.ledger import servers
from gpupool.ledger.database import Lead
from gpupool.ledger.servers import LockHolder, ServerIdentity, ServerRow
from gpupool.node.address import pool_host
from gpupool.node.connection import ConnectionLostError
from gpupool.node.leader_epoch import DEPOSED_NS, LeaderEpoch
from gpupool.pool.leading.lead_times import LeadTimes
from gpupool.pool.leading.leader_watch import EndConnection, LeaderWatch, TakeOver, Wait
from gpupool.pool.leading.leadership import Leadership
from gpupool.proto import pool_pb2
from gpupool.shares import Share
from sqlalchemy.exc import OperationalError

from jupyter_gpupool.server.pool.connection import PoolConnection, WrongSettingError
from jupyter_gpupool.server.pool.identity import PoolAccess, PoolUser

A, B = "10.0.0.5:7460", "tls:pool2.example.org:7460"


class TestTheirNames:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            (A, (A,)),
            (f"{A},{B}", (A, B)),
            (f" {A} , {B}", (A, B)),
            ("unix:/run/gpupool/pool.sock", ("unix:/run/gpupool/pool.sock",)),
            ("[fd00::5]:7460,[fd00::6]:7460", ("[fd00::5]:7460", "[fd00::6]:7460")),
        ],
    )
    def test_are_addresses_with_commas_between_them(self, text: str, found: tuple[str, ...]) -> None:
        assert parse_endpoints(text) == found

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("", "empty"),
            (f"{A},", "empty"),
            (f"{A},,{B}", "empty"),
            (f"{A},pool2", "pool2:7460"),
            (f"{A},pool2:", "pool2:7460"),
            ("tls:pool2", "tls:pool2:7460"),
            (f"{A},/run/pool.sock", "unix:/run/pool.sock"),
            (f"{A},pool2:70000", "65535"),
            (f"{A},{B},{A}", "twice"),
            (",".join(f"h{n}:1" for n in range(17)), "at most 16"),
        ],
    )
    def test_that_are_none_are_named(self, text: str, says: str) -> None:
        with pytest.raises(EndpointError, match=says):
            parse_endpoints(text)

    def test_of_the_environment_are_checked_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GPUPOOL_ENDPOINT", f"{A}, {B}")
        assert resolve_endpoint() == f"{A},{B}"
        monkeypatch.setenv("GPUPOOL_ENDPOINT", f"{A},pool2")
        with pytest.raises(EndpointError, match="GPUPOOL_ENDPOINT"):
            resolve_endpoint()

    async def test_that_are_wrong_in_a_jupyter_server_name_its_setting(self) -> None:
        async def connect(endpoint: str, access: PoolAccess) -> object:
            from jupyter_gpupool.server.extension import connect

            return await connect(endpoint, access)

        pool = PoolConnection(f"{A},pool2", PoolAccess(), PoolUser("ann"), connect)  # type: ignore[arg-type]
        with pytest.raises(WrongSettingError, match=r"pool2.*c\.GpuPoolExtension\.pool_endpoint"):
            await pool.devices()


class TestAllOfThem:
    def test_must_be_safe_for_a_token_of_the_hub(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "secret")
        assert is_secure(f"{B},unix:/run/pool.sock")
        assert hub_token(B) == "secret"
        with pytest.raises(GpupoolError, match="could hear"):
            hub_token(f"{B},{A}")

    def test_are_looked_at_for_one_on_another_machine(self) -> None:
        assert pool_host(f"unix:/run/pool.sock,{A}") == "10.0.0.5"
        assert pool_host("127.0.0.1:7460,unix:/run/pool.sock") is None


def failure(code: grpc.StatusCode, reason: str = "") -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata(("gpupool-reason", reason)) if reason else grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing)


class TestTurning:
    def test_goes_round(self) -> None:
        ring = ServerRing("a:1,b:2,c:3")
        asked = []
        for _ in range(4):
            asked.append(ring.asked)
            ring.turn_from(ring.asked)
        assert asked == ["a:1", "b:2", "c:3", "a:1"]

    def test_is_done_once_by_calls_that_fail_together(self) -> None:
        ring = ServerRing("a:1,b:2,c:3")
        for _ in range(5):
            ring.turn_from("a:1")
        assert ring.asked == "b:2"

    def test_follows_a_broken_connection_a_standby_and_silence_but_no_answer(self) -> None:
        for code, reason, turns in (
            (grpc.StatusCode.UNAVAILABLE, "", True),
            (grpc.StatusCode.UNAVAILABLE, NOT_LEADER, True),
            (grpc.StatusCode.DEADLINE_EXCEEDED, "", True),
            (grpc.StatusCode.PERMISSION_DENIED, "forbidden", False),
            (grpc.StatusCode.NOT_FOUND, "unknown-lease", False),
        ):
            ring = ServerRing("a:1,b:2")
            assert Patience(ring, 1.0).failed(failure(code, reason), "a:1") is turns
            assert ring.asked == ("b:2" if turns else "a:1")

    async def test_reaches_each_server_before_patience_ends(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gpupool.client.servers.TAKEOVER_SECONDS", 0.0)
        monkeypatch.setattr("gpupool.client.servers.SEVERAL_SECONDS", 0.0)
        silent = failure(grpc.StatusCode.DEADLINE_EXCEEDED)
        patience = Patience(ServerRing("a:1,b:2,c:3"), 0.0)
        again = []
        for endpoint in ("a:1", "b:2", "a:1", "c:3"):
            again.append(patience.failed(silent, endpoint))
            await asyncio.sleep(0.01)
        assert again == [True, True, True, False]
        patience.answered()
        assert patience.failed(silent, "a:1")

    def test_a_single_server_that_is_silent_is_not_asked_again(self) -> None:
        ring = ServerRing("a:1")
        assert not Patience(ring, 1.0).failed(failure(grpc.StatusCode.DEADLINE_EXCEEDED), "a:1")

    async def test_patience_is_longer_where_a_standby_answered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gpupool.client.servers.SEVERAL_SECONDS", 0.0)
        unavailable, standby = (failure(grpc.StatusCode.UNAVAILABLE, reason) for reason in ("", NOT_LEADER))
        ring = ServerRing("a:1,b:2")
        without, with_one = Patience(ring, 0.0), Patience(ring, 0.0)
        without.failed(unavailable, "a:1")
        with_one.failed(standby, "a:1")
        await asyncio.sleep(0.01)
        assert not without.failed(unavailable, "b:2")
        assert with_one.failed(unavailable, "b:2")

    async def test_a_call_that_was_heard_for_long_ends_what_failed_before_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It waited in the queue, and nobody told it anything, when the leader died."""
        monkeypatch.setattr("gpupool.client.servers.SEVERAL_SECONDS", 0.0)
        died = failure(grpc.StatusCode.UNAVAILABLE)
        ring = ServerRing("a:1,b:2")
        for lasted, again in ((0.0, False), (HEARD_SECONDS + 1, True)):
            patience = Patience(ring, 0.001)
            patience.failed(died, "a:1")
            await asyncio.sleep(0.01)
            assert patience.failed(died, "b:2", lasted=lasted) is again

    async def test_patience_is_longer_where_several_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that takes over right now may not answer for a moment."""
        monkeypatch.setattr("gpupool.client.servers.SEVERAL_SECONDS", 60.0)
        for endpoints, again in (("a:1,b:2", True), ("a:1", False)):
            patience = Patience(ServerRing(endpoints), 0.001)
            patience.failed(failure(grpc.StatusCode.UNAVAILABLE), "a:1")
            await asyncio.sleep(0.01)
            assert patience.failed(failure(grpc.StatusCode.UNAVAILABLE), "a:1") is again


class TestASilentServer:
    """A process that is stopped keeps its connections; its callers may lose patience before the call's deadline."""

    async def give_up(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> str:
        async with PoolClient(f"{A},{B}") as client:

            class Silent:
                async def ListDevices(self, *_: object, **__: object) -> None:
                    await asyncio.Event().wait()

            monkeypatch.setattr(client, "_service", lambda _: Silent())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(seconds):
                    await client.devices()
            return client._opened().asked

    async def test_is_not_asked_again_by_those_who_gave_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gpupool.client.servers.SILENT_SECONDS", 0.1)
        assert await self.give_up(monkeypatch, 0.2) == B

    async def test_is_asked_again_by_those_who_did_not_wait(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gpupool.client.servers.SILENT_SECONDS", 3600.0)
        assert await self.give_up(monkeypatch, 0.05) == A


class TestATokenOfTheHub:
    """A server that is stopped gives none, for 10 s each; patience with all of them is shorter than that takes."""

    SERVERS = ("a:1", "b:2", "c:3", "d:4")

    async def asked(
        self,
        monkeypatch: pytest.MonkeyPatch,
        broken: dict[str, grpc.StatusCode],
        wait_seconds: float | None = None,
        *,
        is_request: bool = True,
    ) -> tuple[list[str], str]:
        """Whom a call asks for a token, and what it is refused with in the end; the others give one at once."""
        now, asked = [100.0], []
        monkeypatch.setattr("gpupool.client.pool.time", SimpleNamespace(monotonic=lambda: now[0]))
        monkeypatch.setattr("gpupool.client.servers.time", SimpleNamespace(monotonic=lambda: now[0]))

        async def pause(seconds: float) -> None:
            now[0] += seconds

        async with PoolClient(",".join(self.SERVERS), hub_identity=False) as client:

            class Tokens(TokenCredentials):
                async def metadata(self) -> tuple[tuple[str, str], ...]:
                    server = client._opened().asked
                    asked.append(server)
                    if server not in broken:
                        return ()
                    if broken[server] is grpc.StatusCode.DEADLINE_EXCEEDED:
                        now[0] += 10.0
                    raise failure(broken[server])

            class Refusing:
                async def Request(self, *_: object, **__: object) -> AsyncIterator[pool_pb2.RequestEvent]:
                    yield pool_pb2.RequestEvent(refused=pool_pb2.Refusal(reason="quota"))

                async def ListDevices(self, *_: object, **__: object) -> None:
                    raise failure(grpc.StatusCode.FAILED_PRECONDITION, "quota")

            monkeypatch.setattr(client, "_credentials", Tokens(lambda: ""))
            monkeypatch.setattr(client, "_service", lambda _: Refusing())
            monkeypatch.setattr("gpupool.client.pool.asyncio", SimpleNamespace(sleep=pause))
            request = functools.partial(client.request, LeaseRequest(Share(200)), wait_seconds=wait_seconds)
            call: Callable[[], Awaitable[object]] = request if is_request else client.devices
            with pytest.raises(GpupoolError) as refused:
                await call()
        return asked, getattr(refused.value, "reason", "")

    @pytest.mark.parametrize("wait_seconds", [None, 15.0])
    async def test_is_asked_of_the_last_server_though_those_before_it_were_silent(
        self, monkeypatch: pytest.MonkeyPatch, wait_seconds: float | None
    ) -> None:
        silent = dict.fromkeys(self.SERVERS[:3], grpc.StatusCode.DEADLINE_EXCEEDED)
        assert await self.asked(monkeypatch, silent, wait_seconds) == (list(self.SERVERS), "quota")

    async def test_is_asked_of_the_last_server_by_other_calls_too(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        silent = dict.fromkeys(self.SERVERS[:3], grpc.StatusCode.DEADLINE_EXCEEDED)
        assert await self.asked(monkeypatch, silent, is_request=False) == (list(self.SERVERS), "quota")

    async def test_is_asked_of_no_server_again_when_all_were_silent_for_long(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        silent = dict.fromkeys(self.SERVERS, grpc.StatusCode.DEADLINE_EXCEEDED)
        assert await self.asked(monkeypatch, silent, is_request=False) == (list(self.SERVERS), "")

    async def test_is_asked_of_the_last_server_though_the_one_before_it_is_gone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = dict.fromkeys(self.SERVERS[:3], grpc.StatusCode.DEADLINE_EXCEEDED)
        broken["c:3"] = grpc.StatusCode.UNAVAILABLE
        monkeypatch.setattr("gpupool.client.servers.TAKEOVER_SECONDS", 5.0)
        assert await self.asked(monkeypatch, broken, None) == (list(self.SERVERS), "quota")

    async def test_is_asked_of_each_server_once_beyond_the_limit(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = dict.fromkeys(self.SERVERS, grpc.StatusCode.DEADLINE_EXCEEDED)
        broken["a:1"] = grpc.StatusCode.UNAVAILABLE
        assert await self.asked(monkeypatch, broken, 15.0) == (list(self.SERVERS), "")


class TestAnAgent:
    def test_leaves_a_server_that_was_deposed(self) -> None:
        epochs = LeaderEpoch()
        for epoch in (0, 3, 3, 4):
            epochs.heard(epoch, 0)
        with pytest.raises(ConnectionLostError, match="epoch 3"):
            epochs.heard(3, DEPOSED_NS - 1)
        epochs.heard(4, DEPOSED_NS - 1)

    def test_follows_another_ledger_that_counts_from_below(self) -> None:
        epochs = LeaderEpoch()
        epochs.heard(7, 0)
        epochs.heard(1, DEPOSED_NS)
        epochs.heard(1, DEPOSED_NS)


TIMES = LeadTimes()
HOLDER = LockHolder(42, "gpupool-a")


def row(beats: int, name: str = "a") -> ServerRow:
    return ServerRow(name, name, f"{name}:1", "1", 3, 0.0, 0.0, beats)


class Looks:
    """A standby that looks as often as it does, at what does not change."""

    def __init__(self) -> None:
        self.now = 0.0
        self._watch = LeaderWatch(TIMES)

    def until(
        self, moment: float, holder: LockHolder | None, leader: ServerRow
    ) -> Wait | EndConnection | TakeOver:
        """What it makes of the last look."""
        verdict = self._watch.look(holder, leader, self.now)
        while self.now + TIMES.look <= moment:
            self.now += TIMES.look
            verdict = self._watch.look(holder, leader, self.now)
        return verdict


class TestAStandby:
    def test_waits_while_the_leader_lives(self) -> None:
        looks = Looks()
        for beat in range(100):
            assert isinstance(looks.until(beat * TIMES.silent * 0.9, HOLDER, row(beat)), Wait)

    def test_ends_the_connection_of_a_silent_leader_and_then_takes_over(self) -> None:
        looks = Looks()
        assert isinstance(looks.until(TIMES.silent - TIMES.look, HOLDER, row(7)), Wait)
        verdict = looks.until(TIMES.silent, HOLDER, row(7))
        assert isinstance(verdict, EndConnection)
        assert verdict.pid == HOLDER.pid
        assert isinstance(looks.until(TIMES.silent + TIMES.free - TIMES.look, None, row(7)), Wait)
        assert isinstance(looks.until(TIMES.silent + TIMES.free, None, row(7)), TakeOver)

    def test_gives_a_leader_that_reads_the_ledger_its_time(self) -> None:
        looks = Looks()
        assert isinstance(looks.until(TIMES.starting - TIMES.look, HOLDER, row(1)), Wait)
        assert isinstance(looks.until(TIMES.starting, HOLDER, row(1)), EndConnection)

    def test_leaves_a_free_lock_to_the_former_leader_for_a_moment(self) -> None:
        looks = Looks()
        for beat in range(5):
            assert isinstance(looks.until(looks.now + TIMES.free * 0.9, None, row(beat)), Wait)
            assert isinstance(looks.until(looks.now + TIMES.look, HOLDER, row(beat + 1)), Wait)

    def test_counts_anew_after_it_stood_still_itself(self) -> None:
        """What it saw an hour ago says nothing: the leader may have led all the time since."""
        looks = Looks()
        for holder in (HOLDER, None):
            looks.until(looks.now + 1.0, holder, row(7))
            looks.now += 3600
            assert isinstance(looks.until(looks.now + 1.0, holder, row(7)), Wait)

    def test_takes_over_at_once_where_the_leader_said_goodbye(self) -> None:
        assert isinstance(LeaderWatch(TIMES).look(None, None, 0.0), TakeOver)

    def test_times_that_would_let_two_serve_at_once_are_refused(self) -> None:
        with pytest.raises(ValueError, match="sure"):
            LeadTimes(sure=3.0, free=2.0)
        with pytest.raises(ValueError, match="silent"):
            LeadTimes(silent=1.9)


class Refusal(Exception):
    """A call was ended."""


class Call:
    """A call that hears what it is refused with."""

    def set_trailing_metadata(self, metadata: object) -> None: ...

    async def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise Refusal(code)


class SeenServers:
    """A database that says that one leads, and who else is there, until it does not answer any more."""

    epoch = 1

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = MagicMock()
        self.away = False
        monkeypatch.setattr(servers, "beat", lambda *_: None)
        monkeypatch.setattr(servers, "rows", lambda _: self.rows)
        self.rows: list[ServerRow] = []

    def leads(self) -> Lead:
        if self.away:
            raise OperationalError("SELECT 1", {}, OSError("no answer"))
        return Lead.HELD


class TestALeaderWhoseDatabaseIsAway:
    TIMES = LeadTimes(sure=1e-6, free=2.0, silent=5.0)  # each call asks

    async def serves(
        self, monkeypatch: pytest.MonkeyPatch, *seen: ServerRow, alone: bool, gone_since: bool = False
    ) -> bool:
        database = SeenServers(monkeypatch)
        leadership = Leadership(cast(Any, database), ServerIdentity(id="me"), self.TIMES, alone=alone)
        database.rows = list(seen)
        await leadership._confirm()
        if gone_since:
            database.rows = []
            await leadership._confirm()
        database.away = True
        try:
            await leadership.admit(Call())
        except Refusal as refusal:
            assert refusal.args == (grpc.StatusCode.UNAVAILABLE,)
            return False
        return True

    async def test_serves_on_if_there_was_never_a_standby(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert await self.serves(monkeypatch, alone=True)

    async def test_serves_nobody_if_a_standby_may_have_come_since(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert not await self.serves(monkeypatch, alone=False)

    @pytest.mark.parametrize("gone_since", [False, True])
    async def test_serves_nobody_if_it_ever_saw_one(
        self, monkeypatch: pytest.MonkeyPatch, gone_since: bool
    ) -> None:
        standby = replace(row(1), id="b", epoch=0, silent_seconds=0.1)
        assert not await self.serves(monkeypatch, standby, alone=True, gone_since=gone_since)


def test_a_ledger_in_a_file_has_no_epoch(tmp_path: Path) -> None:
    from gpupool.ledger.database import Lead, SqliteFile

    database = SqliteFile(tmp_path / "pool.sqlite")
    assert (database.epoch, database.leads()) == (0, Lead.HELD)
