"""Several pool servers on one ledger: one leads; when it dies, is stopped or loses its connection, another takes over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from gpupool.client.errors import PoolRefusedError, PoolUnavailableError
from gpupool.client.holder import LeaseHolder
from gpupool.client.pool import PoolClient
from gpupool.client.servers import NOT_LEADER, reason_of
from gpupool.client.types import LeaseRequest, LeaseStatus
from gpupool.ledger.ledger import Ledger
from gpupool.model.clock import Clock
from gpupool.model.state import State
from gpupool.pool.access import tokens
from gpupool.pool.access.listening import ServeError
from gpupool.proto import pool_pb2 as pb
from gpupool.proto import pool_pb2_grpc
from gpupool.shares import Share
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support import forked_cli, postgres
from tests.support.certificates import make_certificates
from tests.support.patience import measured
from tests.support.pool_server import Caller, pool_server
from tests.support.pool_servers import SERVERS, PoolServers, check_ledger
from tests.support.takeover import Askers

#: Attaches under way when the leader is killed; `make standby-check` has 1000.
ATTACHES = int(os.environ.get("GPUPOOL_STANDBY_ATTACHES", "60"))
KEY = "0" * 32


@pytest.fixture
def pool(postgres_server: postgres.Cluster) -> Iterator[PoolServers]:
    with PoolServers(postgres_server.database(), scale=0.5) as servers:
        yield servers


def request_of(key: str, milli: int = 200, **more: object) -> LeaseRequest:
    return LeaseRequest(share=Share(milli=milli), idempotency_key=key, **more)  # type: ignore[arg-type]


class TestWhoLeads:
    def test_of_two_that_start_at_once_one_leads_and_both_agree(self, pool: PoolServers) -> None:
        pool.start()
        leader, standby = pool.leader(), pool.standby()
        answers = {name: pool.described(name) for name in (leader, standby)}
        assert [one.id for one in answers[leader].servers] == [one.id for one in answers[standby].servers]
        assert [one.epoch for one in answers[standby].servers] == [1, 0]
        assert answers[leader].answered_by == answers[standby].servers[0].id
        assert (answers[leader].leads, answers[standby].leads) == (True, False)

    async def test_a_standby_refuses_every_call_but_who_leads_and_how_it_is(self, pool: PoolServers) -> None:
        pool.start()
        async with grpc.aio.insecure_channel(pool.endpoint_of(pool.standby())) as channel:
            calls = {
                "ListDevices": pool_pb2_grpc.PoolStub(channel).ListDevices(pb.ListRequest()),  # type: ignore[no-untyped-call, unused-ignore]
                "Renew": pool_pb2_grpc.PoolStub(channel).Renew(pb.RenewLeases(lease_ids=["l1"])),  # type: ignore[no-untyped-call, unused-ignore]
                "WhoAmI": pool_pb2_grpc.IdentitiesStub(channel).WhoAmI(pb.ListRequest()),  # type: ignore[no-untyped-call, unused-ignore]
            }
            for call in calls.values():
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                assert (caught.value.code(), reason_of(caught.value)) == (
                    grpc.StatusCode.UNAVAILABLE,
                    NOT_LEADER,
                )
            asked = pool_pb2_grpc.PoolStub(channel).Request(pb.RequestLease(idempotency_key=KEY, milli=100))  # type: ignore[no-untyped-call, unused-ignore]
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in asked:
                    pass
            assert reason_of(caught.value) == NOT_LEADER
            health = health_pb2_grpc.HealthStub(channel)
            lives = await health.Check(health_pb2.HealthCheckRequest())
            serves = await health.Check(health_pb2.HealthCheckRequest(service="gpupool.v1.Pool"))
            assert lives.status == health_pb2.HealthCheckResponse.SERVING
            assert serves.status == health_pb2.HealthCheckResponse.NOT_SERVING

    async def test_a_client_that_knows_only_a_standby_is_told_that_the_pool_is_away(
        self, pool: PoolServers
    ) -> None:
        pool.start()
        only = pool.endpoint_of(pool.standby())
        async with PoolClient(only) as client:
            with pytest.raises(PoolUnavailableError) as caught:
                async with asyncio.timeout(60):
                    await client.devices()
        assert only in str(caught.value)

    def test_a_leader_that_ends_hands_over(self, pool: PoolServers) -> None:
        pool.start()
        leader, standby = pool.leader(), pool.standby()
        pool.signal(leader, signal.SIGTERM)
        pool.wait(lambda: pool.leaders() == [standby], 20, "the standby to lead")
        assert pool.processes[leader].wait() == 0
        pool.wait(lambda: epochs(pool, standby) == [2], 20, "the new leader to see itself as the only one")


class TestSettings:
    def test_a_standby_says_what_is_wrong_with_its_own_and_leads_without_it(
        self, postgres_server: postgres.Cluster, tmp_path: Path
    ) -> None:
        file = tmp_path / "providers.toml"
        good = '[good]\nkind = "local"\n[bad]\nkind = "local"\n'
        file.write_text(good)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            options = ("--providers", str(file), "--metrics", f"127.0.0.1:{taken.getsockname()[1]}")
            with PoolServers(
                postgres_server.database(), scale=0.5, serve=dict.fromkeys(SERVERS, options)
            ) as pool:
                pool.start()
                leader, standby = pool.leader(), pool.standby()
                assert pool.described(standby).problem == ""
                file.write_text(good + "maximun = 3\n")
                pool.wait(lambda: "maximun" in pool.described(standby).problem, 20, "the standby to say so")
                pool.kill(leader)
                pool.wait(lambda: pool.leaders() == [standby], 20, "the standby to lead")
                with grpc.insecure_channel(pool.endpoint_of(standby)) as channel:
                    stub = pool_pb2_grpc.PoolStub(channel)  # type: ignore[no-untyped-call, unused-ignore]
                    report = stub.Health(pb.HealthRequest(), timeout=60)
                    assert list(stub.ListDevices(pb.ListRequest(), timeout=60).lenders) == ["good"]
                (settings,) = [check for check in report.checks if check.name == "settings"]
                assert settings.status == "fail"
                assert "without metrics: 127.0.0.1" in settings.detail
                assert "without provider bad" in settings.detail and "maximun" in settings.detail

    def test_a_file_that_is_wrong_at_the_start_is_refused_then(
        self, postgres_server: postgres.Cluster, tmp_path: Path
    ) -> None:
        file = tmp_path / "providers.toml"
        file.write_text('[bad]\nkind = "local"\nmaximun = 3\n')
        done = forked_cli.gpupool(
            "pool", "serve", "--standby", "--ledger", postgres_server.database(), "--providers", str(file),
            environment={**os.environ, "GPUPOOL_HOME": str(tmp_path / "home")}, seconds=60,
        )  # fmt: skip
        assert done.returncode != 0
        assert "maximun" in done.stderr


class TestTheOptionNeedsADatabase:
    @pytest.mark.parametrize("ledger", [(), ("--ledger", "pool.sqlite")])
    def test_that_several_servers_can_reach(self, ledger: tuple[str, ...]) -> None:
        done = forked_cli.gpupool(
            "pool", "serve", "--standby", *ledger, environment=dict(os.environ), seconds=60
        )
        assert done.returncode == 2
        assert "--standby" in done.stderr
        assert "PostgreSQL" in done.stderr

    def test_and_a_second_server_without_it_is_refused(self, pool: PoolServers) -> None:
        pool.start("a")
        pool.leader()
        done = subprocess.run(
            [*pool_command(), "--ledger", pool.ledger], env={**pool.environment, "GPUPOOL_HOME": str(pool.home("c"))},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert "--standby" in done.stderr


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def pool_command() -> list[str]:
    return [sys.executable, "-m", "gpupool.cli.main", "pool", "serve"]


class TestWhatGoesOn:
    async def test_a_lease_goes_on_under_the_next_leader(self, pool: PoolServers) -> None:
        pool.start()
        pool.start_node("n1")
        leader, standby = pool.leader(), pool.standby()
        pool.wait(lambda: pool.healthy() == 2, 30, "two devices")
        ended: list[LeaseStatus] = []
        renewed: list[LeaseStatus] = []
        async with (
            PoolClient(pool.endpoint) as client,
            LeaseHolder(
                client, on_ended=ended.append, on_renewed=renewed.append, interval_seconds=0.5
            ) as holder,
        ):
            grant = await client.request(request_of("held"), wait_seconds=60)
            workers = pool.worker_pids()
            holder.hold(grant.lease_id)
            pool.kill(leader)
            await asyncio.to_thread(pool.wait, lambda: pool.leaders() == [standby], 20, "the standby to lead")
            renewed.clear()
            async with asyncio.timeout(120):
                while not renewed:
                    await asyncio.sleep(0.1)
            assert not ended
            assert renewed[0].lease_id == grant.lease_id
            # The same request is the same lease, and the same worker serves it.
            again = await client.request(request_of("held"), wait_seconds=60)
            assert (again.lease_id, again.session_id, again.epoch) == (
                grant.lease_id,
                grant.session_id,
                grant.epoch,
            )
            assert pool.worker_pids() == workers
            # A lease grows only on a node that has come back.
            await asyncio.to_thread(pool.wait, lambda: pool.healthy() == 2, 30, "the node to come back")
            resumed = await client.resize(grant.lease_id, Share(milli=300))
            assert resumed.shares[0].milli == 300

    async def test_a_request_that_waits_is_granted_by_the_next_leader(self, pool: PoolServers) -> None:
        pool.start()
        pool.start_node("n1", gpus=1)
        leader, standby = pool.leader(), pool.standby()
        pool.wait(lambda: pool.healthy() == 1, 30, "a device")
        async with (
            PoolClient(pool.endpoint) as client,
            LeaseHolder(client, on_ended=lambda _: None, interval_seconds=0.5) as holder,
        ):
            first = await client.request(request_of("first", 1000), wait_seconds=60)
            holder.hold(first.lease_id)
            queued = asyncio.Event()
            waiting = asyncio.create_task(
                client.request(request_of("second", 1000), on_queued=lambda _: queued.set())
            )
            async with asyncio.timeout(60):
                await queued.wait()
            pool.kill(leader)
            await asyncio.to_thread(pool.wait, lambda: pool.leaders() == [standby], 20, "the standby to lead")
            assert not waiting.done()
            await client.release(first.lease_id, close_session=True)
            async with asyncio.timeout(120):
                second = await waiting
        assert second.lease_id != first.lease_id
        keys = check_ledger(pool.ledger, {"second": (second.lease_id, second.session_id, second.epoch)})
        assert keys == {"first": 1, "second": 1}


class TestOverTcp:
    async def test_with_tls_and_tokens_the_next_server_is_asked(
        self, postgres_server: postgres.Cluster, tmp_path: Path
    ) -> None:
        made = make_certificates(tmp_path / "tls")
        ports = {name: free_port() for name in SERVERS}
        serve = {
            name: (
                "--listen",
                f"127.0.0.1:{port}",
                "--tls-certificate",
                str(made.certificate),
                "--tls-key",
                str(made.key),
            )
            for name, port in ports.items()
        }
        endpoint = ",".join(f"tls:localhost:{port}" for port in ports.values())
        with PoolServers(postgres_server.database(), serve=serve) as pool:
            pool.start()
            leader, standby = pool.leader(), pool.standby()
            with Ledger(pool.ledger, Clock.start()) as ledger:
                token = tokens.create(ledger, "ann")
            file = tmp_path / "ann.token"
            file.touch(mode=0o600)
            file.write_text(token.secret)
            async with PoolClient(endpoint, file, ca_file=made.authority) as client:
                assert (await client.whoami()).name == "ann"
                described = await client.servers(f"tls:localhost:{ports[standby]}")
                assert (described.leads, len(described.servers)) == (False, 2)
                assert described.servers[0].address == f"tls:127.0.0.1:{ports[leader]}"
                pool.kill(leader)
                assert (await client.whoami()).name == "ann"
            stranger = tmp_path / "stranger.token"
            stranger.touch(mode=0o600)
            stranger.write_text(f"gpupool_{'0' * 12}_{'0' * 64}")
            async with PoolClient(endpoint, stranger, ca_file=made.authority) as client:
                with pytest.raises(PoolRefusedError):
                    await client.servers(f"tls:localhost:{ports[standby]}")


class TestALeaderThatIsStopped:
    async def test_decides_nothing_when_it_goes_on_after_another_took_over(self, pool: PoolServers) -> None:
        pool.start()
        pool.start_node("n1")
        leader, standby = pool.leader(), pool.standby()
        pool.wait(lambda: pool.healthy() == 2, 30, "two devices")
        channel = grpc.aio.insecure_channel(pool.endpoint_of(leader))
        async with channel:
            stub = pool_pb2_grpc.PoolStub(channel)  # type: ignore[no-untyped-call, unused-ignore]
            await stub.ListDevices(pb.ListRequest())  # the connection is there
            pool.signal(leader, signal.SIGSTOP)
            # These lie in its socket, and are the first that it hears when it goes on.
            late = [asyncio.create_task(last_event(stub, f"late{n}")) for n in range(5)]
            listed = asyncio.create_task(devices(stub))
            await asyncio.to_thread(pool.wait, lambda: standby in pool.leaders(), 30, "the standby to lead")
            async with PoolClient(pool.endpoint) as client:
                grant = await client.request(request_of("in-time"), wait_seconds=60)
            pool.signal(leader, signal.SIGCONT)
            async with asyncio.timeout(120):
                answers = await asyncio.gather(*late, listed)
        # A server that stops cancels what is under way.
        assert set(answers) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
        await asyncio.to_thread(pool.standby)
        assert pool.leaders() == [standby]
        keys = check_ledger(pool.ledger, {"in-time": (grant.lease_id, grant.session_id, grant.epoch)})
        assert keys == {"in-time": 1}

    def test_in_the_middle_of_a_transaction_keeps_nobody_from_taking_over(
        self, pool: PoolServers, postgres_server: postgres.Cluster
    ) -> None:
        """Its connections keep the rows that they have locked, until somebody ends them."""
        import psycopg

        pool.start()
        leader, standby = pool.leader(), pool.standby()
        owner = pool.described(leader).answered_by
        beside = psycopg.connect(
            dbname=pool.database,
            user="gpupool",
            host=str(postgres_server.folder),
            application_name=f"gpupool-{owner}",
        )
        with contextlib.closing(beside):
            pool.signal(leader, signal.SIGSTOP)
            beside.execute("UPDATE servers SET beats = beats WHERE id = %s", (owner,))
            beside.execute("UPDATE meta SET value = value WHERE name IN ('owner', 'leader_epoch')")
            pool.wait(lambda: standby in pool.leaders(), 30, "the standby to lead")
            pool.wait(
                lambda: epochs(pool, standby) == [2], 20, "the new leader to see itself as the only one"
            )

    def test_and_may_lead_again(self, pool: PoolServers) -> None:
        pool.start()
        leader, standby = pool.leader(), pool.standby()
        pool.signal(leader, signal.SIGSTOP)
        pool.wait(lambda: standby in pool.leaders(), 30, "the standby to lead")
        pool.signal(leader, signal.SIGCONT)
        assert pool.standby() == leader
        pool.kill(standby)
        pool.wait(lambda: pool.leaders() == [leader], 30, "the first one to lead again")
        # It says that it leads before it has looked who else is there.
        pool.wait(lambda: epochs(pool, leader) == [3], 20, "the first one to see itself as the only one")


class TestALeaderThatLosesItsConnection:
    async def test_decides_on_when_nobody_took_over(
        self, pool: PoolServers, postgres_server: postgres.Cluster
    ) -> None:
        pool.start()
        pool.start_node("n1")
        pool.standby()
        pool.wait(lambda: pool.healthy() == 2, 30, "two devices")
        granted = {}
        async with PoolClient(pool.endpoint) as client:
            for number in range(4):
                postgres_server.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name LIKE 'gpupool-%' AND application_name NOT LIKE '%standby%'"
                )
                grant = await client.request(request_of(f"k{number}"), wait_seconds=60)
                granted[f"k{number}"] = (grant.lease_id, grant.session_id, grant.epoch)
        assert check_ledger(pool.ledger, granted) == {f"k{number}": 1 for number in range(4)}


class TestAServerWhoseDatabaseFailsWhileItReadsTheLedger:
    @pytest.fixture
    def failures(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The connection over which the ledger is read ends in the middle, once."""
        read, seen = Ledger.load, []

        def fails_once(ledger: Ledger) -> State:
            if not seen:
                seen.append(ledger.name)
                with ledger.engine.connect() as connection:
                    connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
            return read(ledger)

        monkeypatch.setattr(Ledger, "load", fails_once)
        return seen

    async def test_stands_by_and_takes_over_later(
        self, postgres_server: postgres.Cluster, failures: list[str]
    ) -> None:
        async with (
            pool_server(ledger=postgres_server.database(), standby=True) as serving,
            Caller(f"unix:{serving.socket}") as caller,
        ):
            assert (await caller.devices()) == []
        assert failures

    async def test_says_so_in_one_sentence_when_it_is_no_standby(
        self, postgres_server: postgres.Cluster, failures: list[str]
    ) -> None:
        with pytest.raises(ServeError) as refused:
            async with pool_server(ledger=postgres_server.database()):
                pass
        assert "cannot be read" in str(refused.value) and "SELECT" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.timeout(3000)
class TestManyAttaches:
    async def test_none_is_lost_and_none_granted_twice_when_the_leader_is_killed(
        self, postgres_server: postgres.Cluster
    ) -> None:
        with PoolServers(postgres_server.database(), real_workers=True) as pool:
            pool.start()
            for name in ("n1", "n2"):
                pool.start_node(name, gpus=4)
            leader, standby = pool.leader(), pool.standby()
            pool.wait(lambda: pool.healthy() == 8, 30, "eight devices")
            askers = Askers(pool.endpoint, ATTACHES)
            working = asyncio.create_task(askers.run())
            await askers.until(ATTACHES // 3)
            pool.kill(leader)
            killed_at = askers.now()
            await asyncio.to_thread(pool.wait, lambda: pool.leaders() == [standby], 60, "the standby to lead")
            leads_after = askers.now() - killed_at
            async with asyncio.timeout(2500):
                await working
            figures = askers.figures(killed_at)
            print(f"the standby leads after {leads_after:.1f} s; {figures}")
            assert askers.lost == []
            assert len(askers.granted) == ATTACHES
            print(f"asked anew: {askers.again}")
            keys = check_ledger(pool.ledger, askers.granted)
            assert set(keys.values()) == {1}
            assert keys.keys() >= askers.granted.keys()
            assert pool.leaders() == [standby]
        if "GPUPOOL_STANDBY_ATTACHES" in os.environ:
            measured(max(leads_after, figures.first_answer_seconds) < 10, (leads_after, figures))


def epochs(pool: PoolServers, server: str) -> list[int]:
    """Of all servers, as one of them has seen them at its last look."""
    answer = pool.described(server)
    return [] if answer is None else [one.epoch for one in answer.servers]


async def last_event(stub: object, key: str) -> object:
    """What a request is answered: the kind of the last event, or the status."""
    kind = ""
    try:
        async for event in stub.Request(
            pb.RequestLease(idempotency_key=key, milli=100, wait_seconds=5), timeout=90
        ):  # type: ignore[attr-defined]
            kind = event.WhichOneof("event")
    except grpc.aio.AioRpcError as error:
        return error.code()
    return kind


async def devices(stub: object) -> object:
    try:
        return await stub.ListDevices(pb.ListRequest(), timeout=90)  # type: ignore[attr-defined]
    except grpc.aio.AioRpcError as error:
        return error.code()
