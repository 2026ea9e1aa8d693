"""Users of a JupyterHub call the pool: who they are is what the Hub says of their token, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from gpupool.client.errors import GpupoolError, PoolRefusedError, PoolUnavailableError
from gpupool.client.pool import PoolClient
from gpupool.client.projects import ProjectsClient, ProjectSettings
from gpupool.client.types import Caller, LeaseRequest
from gpupool.pool.access import hub as hub_module
from gpupool.pool.access import newcomers
from gpupool.pool.access.hub import HubOptions
from gpupool.pool.access.hub_cache import HubTimes
from gpupool.pool.access.listening import ServeError
from gpupool.pool.access.tls_files import TlsFiles
from gpupool.pool.options import Serving
from gpupool.proto import pool_pb2 as pb
from gpupool.proto import pool_pb2_grpc
from gpupool.shares import Share

from tests.support import pool_server as pools
from tests.support.certificates import Certificates, make_certificates
from tests.support.pool_server import ScriptedNode, make_token, pool_server
from tests.support.scripted_hub import ScriptedHub

#: Where time is to pass: an answer of the Hub counts for a second, and for some more while it is silent.
BRISK = HubTimes(believed=1.0, grace=2.5)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def hub() -> Iterator[ScriptedHub]:
    with ScriptedHub() as running:
        running.user("ann-token", "ann", "vision")
        running.user("bob-token", "bob")
        running.user("root-token", "root", admin=True)
        yield running


@dataclass
class Stage:
    serving: Serving
    hub: ScriptedHub
    certificates: Certificates
    monkeypatch: pytest.MonkeyPatch

    @property
    def endpoint(self) -> str:
        return f"tls:127.0.0.1:{self.serving.port}"

    @contextlib.asynccontextmanager
    async def client(self, hub_token: str, endpoint: str | None = None) -> AsyncIterator[PoolClient]:
        """As a server that the Hub started with this token."""
        self.monkeypatch.setenv("JUPYTERHUB_API_TOKEN", hub_token)
        client = PoolClient(endpoint or self.endpoint, hub_identity=True, ca_file=self.certificates.authority)
        async with client:
            yield client


@pytest.fixture
def times() -> HubTimes:
    """How long the Hub's word counts; tests in which time is to pass say `brisk`."""
    return HubTimes()


brisk = pytest.mark.parametrize("times", [BRISK], ids=["brisk"])


@pytest.fixture
async def stage(
    hub: ScriptedHub, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, times: HubTimes
) -> AsyncIterator[Stage]:
    async with pool_server(
        listen="127.0.0.1:0",
        tls=TlsFiles(certificates.certificate, certificates.key),
        hub=HubOptions(hub.api_url, times),
        timers_scale=1.0,
    ) as serving:
        yield Stage(serving, hub, certificates, monkeypatch)


@pytest.fixture
async def node(stage: Stage) -> AsyncIterator[ScriptedNode]:
    async with pools.Caller(f"unix:{stage.serving.socket}") as local, ScriptedNode(local) as running:
        yield running


async def test_the_hub_says_who_somebody_is(stage: Stage) -> None:
    for token, expected in (
        ("ann-token", Caller("ann", "user", ("vision",))),
        ("bob-token", Caller("bob", "user")),
        ("root-token", Caller("root", "admin")),
    ):
        async with stage.client(token) as client:
            assert await client.whoami() == expected
    assert stage.hub.asked == ["ann-token", "bob-token", "root-token"]


async def test_nobody_can_say_that_they_are_another(stage: Stage, node: ScriptedNode) -> None:
    async with stage.client("ann-token") as ann, stage.client("bob-token") as bob:
        grant = await ann.request(
            LeaseRequest(Share(milli=200), label="secret.ipynb", holder="kernel-1"), wait_seconds=0
        )
        for forbidden in (
            bob.request(LeaseRequest(Share(milli=100), on_behalf_of="ann"), wait_seconds=0),
            bob.release(grant.lease_id),
            bob.usage(grant.session_id),
            bob.close_session(grant.session_id, "exit"),
        ):
            with pytest.raises(PoolRefusedError) as refusal:
                await forbidden
            assert refusal.value.reason == "forbidden"
        assert (await bob.renew([grant.lease_id]))[grant.lease_id].state == "unknown"
        (seen,) = (await bob.devices())[0].shares
        assert (seen.user, seen.label, seen.holder) == ("ann", "", "")
        assert await bob.sessions() == []
        async with stage.client("root-token") as root:
            (seen,) = (await root.devices())[0].shares
            assert (seen.user, seen.label) == ("ann", "secret.ipynb")
        await ann.release(grant.lease_id)


async def test_groups_of_the_hub_are_members_of_projects(stage: Stage, node: ScriptedNode) -> None:
    async with stage.client("root-token") as root, stage.client("ann-token") as ann:
        await ProjectsClient(root).set_project(ProjectSettings("research", members=("@vision",)))
        grant = await ann.request(LeaseRequest(Share(milli=100)), wait_seconds=0)
        assert [lease.project for lease in await ann.leases()] == ["research"]
        await ann.release(grant.lease_id)
        visible = await ProjectsClient(ann).projects()
        assert {project.settings.path: project.settings.members for project in visible.projects}[
            "research"
        ] == ("@vision",)
        async with stage.client("bob-token") as bob:
            with pytest.raises(PoolRefusedError, match="bob is not a member of project research"):
                await bob.request(LeaseRequest(Share(milli=100), project="research"), wait_seconds=0)
            visible = await ProjectsClient(bob).projects()
            assert {p.settings.path: p.settings.members for p in visible.projects}["research"] == ()
        # Who is called like a group, or asks by that name, is not in it.
        stage.hub.user("odd-token", "@vision")
        async with stage.client("odd-token") as odd:
            with pytest.raises(PoolRefusedError, match="cannot be a user here"):
                await odd.whoami()


@brisk
async def test_a_group_that_was_left_counts_no_more_after_a_while(stage: Stage, node: ScriptedNode) -> None:
    async with stage.client("ann-token") as ann:
        assert (await ann.whoami()).groups == ("vision",)
        stage.hub.user("ann-token", "ann")
        await _until(lambda: _groups(ann), ())


async def _groups(client: PoolClient) -> tuple[str, ...]:
    return (await client.whoami()).groups


async def _until(ask: Any, expected: object, seconds: float = 8.0) -> None:
    async with asyncio.timeout(seconds):
        while await ask() != expected:
            await asyncio.sleep(0.1)


async def test_the_hub_is_not_asked_at_each_call(stage: Stage) -> None:
    async with stage.client("ann-token") as ann:
        for _ in range(50):
            await ann.devices()
    async with stage.client("ann-token") as again:  # another process of the same server
        await again.devices()
    assert stage.hub.asked == ["ann-token"]


async def test_many_who_ask_at_once_make_one_question(stage: Stage) -> None:
    stage.hub.delay = 0.3
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(stage.client("ann-token")) for _ in range(20)]
        assert {caller.name for caller in await asyncio.gather(*(c.whoami() for c in clients))} == {"ann"}
    assert stage.hub.asked == ["ann-token"]


@brisk
async def test_a_token_that_was_revoked_in_the_hub_ends(stage: Stage, node: ScriptedNode) -> None:
    async with stage.client("bob-token") as bob, stage.client("ann-token") as ann:
        held = [await bob.request(LeaseRequest(Share(milli=1000)), wait_seconds=0) for _ in range(2)]
        waits = asyncio.create_task(ann.request(LeaseRequest(Share(milli=500)), wait_seconds=None))
        await asyncio.sleep(0.2)
        del stage.hub.users["ann-token"]
        async with asyncio.timeout(BRISK.believed + 2):
            while True:
                try:
                    await ann.devices()
                except PoolRefusedError as refusal:
                    assert "does not know this token" in refusal.explanation
                    break
                await asyncio.sleep(0.1)
        # What waits in the queue gets nothing any more.
        await bob.release(held[0].lease_id)
        with pytest.raises(PoolRefusedError, match=r"revoked|does not know this token"):
            async with asyncio.timeout(5):
                await waits


@brisk
async def test_a_request_may_wait_for_longer_than_a_short_lived_token_is_good(
    stage: Stage, node: ScriptedNode
) -> None:
    async with stage.client("bob-token") as bob, stage.client("ann-token") as ann:
        full = [await bob.request(LeaseRequest(Share(milli=1000)), wait_seconds=0) for _ in range(2)]
        waits = asyncio.create_task(ann.request(LeaseRequest(Share(milli=500)), wait_seconds=None))
        await asyncio.sleep(2 * BRISK.believed + 0.5)
        assert not waits.done()
        await bob.release(full[0].lease_id)
        grant = await asyncio.wait_for(waits, 5)
        await ann.release(grant.lease_id)


@brisk
async def test_while_the_hub_is_down_who_is_known_goes_on_and_others_are_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "_PAUSE_SECONDS", 0.5)
    async with stage.client("ann-token") as ann, stage.client("bob-token") as bob:
        await ann.devices()
        stage.hub.stop()
        begun = asyncio.get_running_loop().time()
        with pytest.raises(PoolRefusedError, match="JupyterHub does not answer") as refusal:
            await bob.devices()
        assert refusal.value.reason == "hub-down"
        with pytest.raises(PoolRefusedError, match="JupyterHub does not answer"):  # noqa: PT012
            async with asyncio.timeout(30):
                while True:
                    await ann.devices()
                    await asyncio.sleep(0.1)
        lasted = asyncio.get_running_loop().time() - begun
        assert lasted > BRISK.believed + BRISK.grace - 0.5
        stage.hub.start()
        await _until(lambda: _name(ann), "ann", 15)
        assert await _name(bob) == "bob"


async def _name(client: PoolClient) -> str:
    try:
        return (await client.whoami()).name
    except PoolRefusedError as refusal:
        return refusal.reason


async def test_a_pool_that_was_restarted_exchanges_again(
    hub: ScriptedHub, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "ann-token")
    (tmp_path / "home").mkdir(mode=0o700)
    options: dict[str, Any] = {
        "home": tmp_path / "home",
        "tls": TlsFiles(certificates.certificate, certificates.key),
        "hub": HubOptions(hub.api_url, HubTimes()),
    }
    async with pool_server(listen="127.0.0.1:0", **options) as first:
        listen = f"127.0.0.1:{first.port}"
        client = PoolClient(f"tls:{listen}", hub_identity=True, ca_file=certificates.authority)
        await client.__aenter__()
        await client.devices()
    async with pool_server(listen=listen, **options):
        await client.devices()
        assert hub.asked == ["ann-token"] * 2
        await client.close()


async def test_calls_that_a_restarted_pool_refuses_together_are_all_made_again(
    hub: ScriptedHub, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "ann-token")
    (tmp_path / "home").mkdir(mode=0o700)
    options: dict[str, Any] = {
        "home": tmp_path / "home",
        "tls": TlsFiles(certificates.certificate, certificates.key),
        "hub": HubOptions(hub.api_url, HubTimes()),
    }
    async with pool_server(listen="127.0.0.1:0", **options) as first:
        listen = f"127.0.0.1:{first.port}"
        client = PoolClient(f"tls:{listen}", hub_identity=True, ca_file=certificates.authority)
        await client.__aenter__()
        await client.devices()
    async with pool_server(listen=listen, **options):
        await asyncio.gather(*(client.whoami() for _ in range(8)))
        assert hub.asked == ["ann-token"] * 2
        await client.close()


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((500, b"oops"), "it answers HTTP 500"),
        ((302, b""), "it answers HTTP 302"),
        ((404, b""), "it answers HTTP 404"),
        ((200, b"<html>"), "not JSON"),
        ((200, b"x" * 2_000_000), "more than"),
        ((200, b'{"kind": "service", "name": "grader"}'), "of a 'service'"),
    ],
)
async def test_odd_answers_of_the_hub_are_refusals(
    stage: Stage, answer: tuple[int, bytes], problem: str
) -> None:
    stage.hub.instead = answer
    async with stage.client("ann-token") as ann:
        with pytest.raises(PoolRefusedError, match=problem):
            await ann.devices()


async def test_tokens_that_were_never_seen_are_asked_about_so_often_only(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends guesses burdens the Hub no more than that, and keeps nobody out who is known."""
    async with stage.client("ann-token") as ann:
        await ann.devices()
        asked, began = len(stage.hub.asked), time.monotonic()
        roots = stage.certificates.authority.read_bytes()
        credentials = grpc.ssl_channel_credentials(roots)
        async with grpc.aio.secure_channel(stage.endpoint.removeprefix("tls:"), credentials) as channel:
            stub: Any = pool_pb2_grpc.IdentitiesStub(channel)

            async def guess(number: int) -> str:
                shown = (("authorization", f"JupyterHub guess-{number}"),)
                try:
                    await stub.Exchange(pb.ExchangeRequest(), metadata=shown, timeout=30)
                except grpc.aio.AioRpcError as error:
                    return error.code().name
                return "OK"

            outcomes = await asyncio.gather(*(guess(number) for number in range(700)))
            # On a slow machine the limit lets more through meanwhile.
            allowed = newcomers.AT_START.each
            most = allowed.burst + 1 + allowed.per_second * (time.monotonic() - began)
            assert set(outcomes) <= {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED"}
            assert outcomes.count("RESOURCE_EXHAUSTED") >= 700 - most
            assert len(stage.hub.asked) - asked <= most
            for odd in ("", "x" * 2000):
                shown = (("authorization", f"JupyterHub {odd}"),)
                with pytest.raises(grpc.aio.AioRpcError):
                    await stub.Exchange(pb.ExchangeRequest(), metadata=shown, timeout=30)
        assert not [token for token in stage.hub.asked if len(token) > 1024 or not token]
        assert (await ann.whoami()).name == "ann"


async def test_a_hub_token_is_sent_where_nobody_else_hears_it_only(stage: Stage) -> None:
    for endpoint in (f"127.0.0.1:{stage.serving.port}", "pool.example.org:7460"):
        with pytest.raises(GpupoolError, match="where others could hear it"):
            async with stage.client("ann-token", endpoint):
                pass
    async with stage.client("ann-token", f"unix:{stage.serving.socket}") as client:
        assert (await client.whoami()) == Caller("ann", "user", ("vision",))


async def test_an_open_port_takes_no_hub_token(hub: ScriptedHub) -> None:
    """Not from those who send it all the same either."""
    with pytest.raises(ServeError, match="--tls-certificate"):
        async with pool_server(listen="127.0.0.1:0", hub=HubOptions(hub.api_url)):
            pass


async def test_another_server_in_the_pools_place_gets_no_token(
    stage: Stage, tmp_path: Path, hub: ScriptedHub
) -> None:
    others = make_certificates(tmp_path / "others")
    async with pool_server(
        listen="127.0.0.1:0", tls=TlsFiles(others.certificate, others.key), hub=HubOptions(hub.api_url)
    ) as imposter:
        async with stage.client("ann-token", f"tls:127.0.0.1:{imposter.port}") as client:
            with pytest.raises(PoolUnavailableError):
                await client.devices()
        assert hub.asked == []


async def test_tokens_of_the_pool_still_work_beside_it(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(make_token(stage.serving, "carl", "user"))
    async with PoolClient(stage.endpoint, file, ca_file=stage.certificates.authority) as client:
        assert await client.whoami() == Caller("carl", "user")


async def test_users_names_are_hidden_where_the_administrator_says_so(
    hub: ScriptedHub, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pool_server(
        listen="127.0.0.1:0",
        tls=TlsFiles(certificates.certificate, certificates.key),
        hub=HubOptions(hub.api_url),
        show_users=False,
        timers_scale=1.0,
    ) as serving:
        stage = Stage(serving, hub, certificates, monkeypatch)
        local = pools.Caller(f"unix:{serving.socket}")
        async with (
            local,
            ScriptedNode(local),
            stage.client("ann-token") as ann,
            stage.client("bob-token") as bob,
        ):
            for _ in range(2):
                await ann.request(LeaseRequest(Share(milli=1000), label="secret.ipynb"), wait_seconds=0)
            waits = asyncio.create_task(ann.request(LeaseRequest(Share(milli=1000)), wait_seconds=None))
            await asyncio.sleep(0.2)
            everything = [
                *await bob.devices(),
                *await bob.leases(),
                *await bob.queue(),
                *await bob.sessions(),
            ]
            assert len(await bob.queue()) == 1 and len(await bob.leases()) == 2
            with pytest.raises(PoolRefusedError, match="another user holds 1") as refusal:
                await bob.request(LeaseRequest(Share(milli=1000)), wait_seconds=0)
            everything += [refusal.value.explanation, refusal.value.details]
            assert "ann" not in repr(everything) and "secret" not in repr(everything)
            assert {lease.user for lease in await ann.leases()} == {"ann"}
            async with stage.client("root-token") as root:
                assert {lease.user for lease in await root.leases()} == {"ann"}
                assert [entry.user for entry in await root.queue()] == ["ann"]
            waits.cancel()


@brisk
async def test_no_token_reaches_a_log(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    heard = io.StringIO()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(heard))
    try:
        with caplog.at_level(logging.DEBUG):
            async with stage.client("ann-token") as ann:
                await ann.devices()
                stage.hub.instead = (500, b"ann-token")
                await asyncio.sleep(BRISK.believed)
                await ann.devices()
    finally:
        structlog.reset_defaults()
    assert "JupyterHub does not answer" in heard.getvalue()
    for text in (heard.getvalue(), caplog.text):
        assert "ann-token" not in text
        assert "gpupool_hub_" not in text


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hub.example.org",
        "ftp://hub/api",
        "http://",
        "https://a:b@hub/api",
        "http://h:x/",
        "http://h/?a=b",
    ],
)
def test_a_url_that_is_none_is_said(url: str) -> None:
    with pytest.raises(hub_module.HubUrlUnusableError, match="no URL of a JupyterHub's API"):
        hub_module._checked(url)
