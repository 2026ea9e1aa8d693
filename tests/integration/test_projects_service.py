"""Projects over real gRPC: administrators change them, everybody sees where they stand."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from gpupool.client.errors import PoolRefusedError
from gpupool.client.os_user import os_user
from gpupool.client.pool import PoolClient
from gpupool.client.projects import LimitSettings, ProjectList, ProjectsClient, ProjectSettings
from gpupool.pool.options import LEDGER_NAME, Serving
from gpupool.proto.sentences import from_message
from gpupool.sentences import Sentence

from tests.support.pool_server import Caller, ScriptedNode, make_token, pool_server


@dataclass
class Stand:
    serving: Serving
    admin: ProjectsClient
    user: ProjectsClient
    caller: Caller


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    """A pool of two devices; its own user is an administrator, and alice a user over TCP."""
    async with pool_server(timers_scale=1.0, listen="127.0.0.1:0") as serving:
        token = tmp_path / "token"
        token.write_text(make_token(serving, "alice", "user"))
        token.chmod(0o600)
        async with (
            Caller(f"unix:{serving.socket}") as caller,
            ScriptedNode(caller),
            PoolClient(f"unix:{serving.socket}") as admin,
            PoolClient(f"127.0.0.1:{serving.port}", token) as user,
        ):
            yield Stand(serving, ProjectsClient(admin), ProjectsClient(user), caller)


async def refusal(call: object) -> PoolRefusedError:
    with pytest.raises(PoolRefusedError) as caught:
        await call  # type: ignore[misc]
    return caught.value


async def test_a_pool_without_projects_has_one_that_deserves_everything(stand: Stand) -> None:
    listed = await stand.user.projects()
    (default,) = listed.projects
    assert (default.settings.path, default.settings.deserved_milli) == ("default", None)
    assert (default.real_deserved_milli, listed.capacity_milli, listed.warnings) == (2000, 2000, ())


async def test_what_projects_hold_wait_for_and_deserve_is_listed(stand: Stand) -> None:
    made = await stand.admin.set_project(ProjectSettings("research/vision", deserved_milli=500))
    assert (made.settings.path, made.real_deserved_milli, made.allocated_milli) == ("research/vision", 500, 0)
    await stand.caller.grant("k1", 1000, count=2)
    waiting = stand.caller.request("k2", 300, wait_seconds=-1)
    await waiting.read()
    listed = await stand.user.projects()
    at = {project.settings.path: project for project in listed.projects}
    assert list(at) == ["default", "research", "research/vision"]
    default = at["default"]
    assert (default.real_deserved_milli, default.fair_share_milli) == (1500, 2000)
    assert (default.allocated_milli, default.waiting_milli) == (2000, 300)
    assert default.protected_milli == 0  # the one lease is larger than what is deserved
    waiting.cancel()


async def test_a_list_says_what_is_open_to_whom_and_where_a_request_without_a_project_counts(
    stand: Stand,
) -> None:
    await stand.admin.set_project(ProjectSettings("research", limit_milli=1500, members=("alice", "bob")))
    await stand.admin.set_project(ProjectSettings("research/vision"))
    await stand.admin.set_project(ProjectSettings("closed", members=("bob",)))

    def open_paths(listed: ProjectList) -> list[str]:
        return [project.settings.path for project in listed.projects if project.open]

    own = await stand.user.projects()
    assert (open_paths(own), own.default_path) == (["default", "research/vision"], "research/vision")
    # A user sees it as themselves, whoever they name.
    assert await stand.user.projects("bob") == own
    bobs = await stand.admin.projects("bob")
    assert (open_paths(bobs), bobs.default_path) == (["closed", "default", "research/vision"], "")
    nobodys = await stand.admin.projects()
    assert (open_paths(nobodys), nobodys.default_path) == ([], "")


async def test_every_change_is_in_the_journal_with_who_made_it(stand: Stand) -> None:
    await stand.admin.set_project(ProjectSettings("a", deserved_milli=500, limit_milli=1000))
    await stand.admin.set_project(ProjectSettings("a", deserved_milli=700, weight=3, members=("alice",)))
    assert await stand.admin.remove_project("a")
    assert not await stand.admin.remove_project("a")
    with sqlite3.connect(stand.serving.socket.parent / LEDGER_NAME) as ledger:
        lines = ledger.execute(
            "SELECT sentence FROM journal WHERE kind = 'project' ORDER BY number"
        ).fetchall()
    words = [str(Sentence.from_json(json.loads(line))) for (line,) in lines]
    said = [line.removeprefix(f"{os_user()} ") for line in words]
    assert said == [
        "made project a: deserves 0.5 GPUs, at most 1 GPU, weight 1, priority 0, members *",
        "changed project a: deserves 0.7 GPUs, no limit, weight 3, priority 0, members alice",
        "removed project a",
    ]


async def test_a_change_of_one_thing_leaves_what_others_change_meanwhile(stand: Stand) -> None:
    await stand.admin.set_project(ProjectSettings("a", deserved_milli=500, members=("alice",)))
    await asyncio.gather(
        stand.admin.change_project("a", {"weight": 3}),
        stand.admin.change_project("a", {"limit_milli": 1500}),
        stand.admin.change_project("a", {"deserved_milli": 700}),
        stand.admin.change_project("a", {"min_run_seconds": 90.0, "priority": -2}),
        stand.admin.change_project("a", {"members": ("bob", "alice", "bob")}),
    )
    at = {project.settings.path: project.settings for project in (await stand.admin.projects()).projects}
    assert at["a"] == ProjectSettings("a", 700, 1500, 3, -2, 90.0, ("bob", "alice"))
    changed = await stand.admin.change_project(
        "a", {"deserved_milli": None, "limit_milli": None, "min_run_seconds": None, "members": ()}
    )
    assert changed.settings == ProjectSettings("a", None, None, 3, -2, None, ())


async def test_what_nobody_has_made_is_changed_as_it_is_seen(stand: Stand) -> None:
    made = await stand.admin.change_project("default", {"weight": 2})
    assert made.settings == ProjectSettings("default", None, weight=2)
    await stand.admin.change_project("research/vision", {"deserved_milli": 500})
    parent = await stand.admin.change_project("research", {"priority": 1})
    assert parent.settings == ProjectSettings("research", 500, priority=1)
    new = await stand.admin.change_project("b", {"weight": 0})
    assert new.settings == ProjectSettings("b", 0, weight=0)
    assert "weight -1 of b is not within" in str(
        await refusal(stand.admin.change_project("b", {"weight": -1}))
    )


async def test_a_change_of_one_limit_leaves_the_others(stand: Stand) -> None:
    await asyncio.gather(
        stand.admin.change_limit("ann", {"milli": 1500}),
        stand.admin.change_limit("ann", {"shares": 4, "window_seconds": 3600}),
        stand.admin.change_limit("ann", {"gpu_seconds": 0}),
    )
    (limit,) = await stand.admin.limits()
    assert limit.settings == LimitSettings("ann", 1500, 4, None, 0, 3600)
    changed = await stand.admin.change_limit("ann", {"milli": None})
    assert changed.settings == LimitSettings("ann", None, 4, None, 0, 3600)
    assert "is not within 1.." in str(await refusal(stand.admin.change_limit("ann", {"window_seconds": -5})))
    with pytest.raises(TypeError, match="'user' of a limit cannot be set"):
        await stand.admin.change_limit("ann", {"user": 1})


async def test_a_user_sees_of_the_members_only_themselves(stand: Stand) -> None:
    for path, members in {"ours": ("alice", "bob"), "theirs": ("bob",), "open": ("*",)}.items():
        await stand.admin.set_project(ProjectSettings(path, members=members))
    for caller, ours, theirs in ((stand.user, ("alice",), ()), (stand.admin, ("alice", "bob"), ("bob",))):
        at = {p.settings.path: p.settings.members for p in (await caller.projects()).projects}
        assert (at["ours"], at["theirs"], at["open"]) == (ours, theirs, ("*",))


async def test_a_user_changes_nothing(stand: Stand) -> None:
    assert (await refusal(stand.user.set_project(ProjectSettings("a")))).reason == "forbidden"
    assert (await refusal(stand.user.remove_project("default"))).reason == "forbidden"
    assert stand.serving.pool.state.projects == {}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (ProjectSettings("a b"), "'a b' is no path of a project"),
        (ProjectSettings("default/x"), "has no projects below it"),
        (ProjectSettings("a", deserved_milli=300, limit_milli=200), "cannot deserve 0.3 GPUs"),
        (ProjectSettings("a", members=("al ice",)), "'al ice' is neither a user nor a @group"),
        (ProjectSettings("a", members=("@al ice",)), "'@al ice' is neither a user nor a @group"),
        (ProjectSettings("a", members=("@",)), "'@' is neither a user nor a @group"),
        (ProjectSettings("a", weight=-1), "weight -1 of a"),
        (ProjectSettings("a", min_run_seconds=float("inf")), "min_run inf s of a"),
    ],
)
async def test_a_project_that_cannot_be_is_refused_with_the_value(
    stand: Stand, settings: ProjectSettings, says: str
) -> None:
    error = await refusal(stand.admin.set_project(settings))
    assert says in error.explanation
    assert stand.serving.pool.state.projects == {}


async def test_projects_are_still_there_after_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "pool"
    home.mkdir(mode=0o700)
    settings = ProjectSettings("a/b", 500, 1500, 2, 3, 90.0, ("alice", "bob"))
    for _ in range(2):
        async with (
            pool_server(home=home) as serving,
            PoolClient(f"unix:{serving.socket}") as pool,
        ):
            if not serving.pool.state.projects:
                await ProjectsClient(pool).set_project(settings)
            listed = await ProjectsClient(pool).projects()
            assert settings in [project.settings for project in listed.projects]


class TestLimits:
    async def test_everybody_sees_their_own_and_how_much_is_used(self, stand: Stand) -> None:
        assert await stand.user.limits() == []
        await stand.admin.set_limit(LimitSettings("*", milli=1500, gpu_seconds=60, window_seconds=600))
        await stand.admin.set_limit(LimitSettings("bob", milli=100))
        await stand.caller.grant("k1", 400, on_behalf_of="alice", count=2)
        (mine,) = await stand.user.limits()
        assert mine.settings == LimitSettings("alice", milli=1500, gpu_seconds=60, window_seconds=600)
        assert (mine.held_milli, mine.held_shares) == (800, 2)
        assert 0 <= mine.used_gpu_seconds < 8
        assert mine.resets_in_seconds is not None
        assert 590 < mine.resets_in_seconds <= 600
        everyones = {limit.settings.user: limit for limit in await stand.admin.limits()}
        assert set(everyones) == {"*", "bob"}
        assert (everyones["*"].held_milli, everyones["*"].resets_in_seconds) == (0, None)

    async def test_a_removed_limit_is_gone(self, stand: Stand) -> None:
        await stand.admin.set_limit(LimitSettings("alice", shares=1))
        assert await stand.admin.remove_limit("alice")
        assert not await stand.admin.remove_limit("alice")
        assert await stand.user.limits() == []

    async def test_a_user_changes_no_limit(self, stand: Stand) -> None:
        assert (await refusal(stand.user.set_limit(LimitSettings("alice", milli=8000)))).reason == "forbidden"
        assert (await refusal(stand.user.remove_limit("alice"))).reason == "forbidden"

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            (LimitSettings("al ice", milli=1), "'al ice' is not a user name"),
            (LimitSettings("alice", window_seconds=-5), "window_seconds -5 of alice"),
            (LimitSettings("alice", gpu_seconds=10**13), "gpu_seconds 10000000000000 of alice"),
        ],
    )
    async def test_a_limit_that_cannot_be_is_refused_with_the_value(
        self, stand: Stand, settings: LimitSettings, says: str
    ) -> None:
        assert says in (await refusal(stand.admin.set_limit(settings))).explanation


async def test_a_first_limit_of_ones_own_changes_only_what_it_names(stand: Stand) -> None:
    await stand.admin.set_limit(LimitSettings("*", milli=1000, shares=3))
    await stand.admin.change_limit("alice", {"gpu_seconds": 72_000})
    of = {limit.settings.user: limit.settings for limit in (await stand.admin.limits())}
    assert (of["alice"].milli, of["alice"].shares, of["alice"].gpu_seconds) == (1000, 3, 72_000)
    await stand.admin.change_limit("*", {"milli": 500})
    of = {limit.settings.user: limit.settings for limit in (await stand.admin.limits())}
    assert (of["*"].milli, of["*"].shares, of["alice"].milli) == (500, 3, 1000)


async def test_what_is_deserved_is_taken_back_with_notice(stand: Stand) -> None:
    """Two GPUs: alice's project uses both while bob's is away; bob comes and has his within the notice."""
    await stand.admin.set_project(
        ProjectSettings("a", deserved_milli=1000, min_run_seconds=0.0, members=("alice",))
    )
    await stand.admin.set_project(ProjectSettings("b", deserved_milli=1000, members=("bob",)))
    old = await stand.caller.grant("k1", 1000, on_behalf_of="alice")
    new = await stand.caller.grant("k2", 1000, on_behalf_of="alice")
    waiting = stand.caller.request("k3", 1000, on_behalf_of="bob", wait_seconds=-1)
    said = await waiting.read()
    assert "asked back from project a (user alice, 1" in str(from_message(said.queued.said))
    leases = stand.serving.pool.state.leases
    assert leases[old.lease_id].notice is None  # it is within what its project deserves
    notice = leases[new.lease_id].notice
    assert notice is not None
    assert notice.reason == "reclaim"
    at = {project.settings.path: project for project in (await stand.user.projects()).projects}
    assert (at["a"].fair_share_milli, at["b"].fair_share_milli, at["b"].waiting_milli) == (1000, 1000, 1000)
    waiting.cancel()


async def test_the_owner_of_the_quota_has_it_after_the_notice() -> None:
    """The whole way, with timers a twentieth of the real ones."""

    async def beat(node: ScriptedNode) -> None:
        while True:
            await node.heartbeat()
            await asyncio.sleep(0.2)

    async with (
        pool_server() as serving,
        Caller(f"unix:{serving.socket}") as caller,
        ScriptedNode(caller) as node,
        PoolClient(f"unix:{serving.socket}") as pool,
    ):
        beats = asyncio.create_task(beat(node))
        projects = ProjectsClient(pool)
        for path in ("a", "b"):
            await projects.set_project(ProjectSettings(path, deserved_milli=1000, min_run_seconds=0.0))
        for key in ("k1", "k2"):
            await caller.grant(key, 1000, on_behalf_of="alice", project="a", reservation=True)
        events = [
            event
            async for event in caller.request(
                "k3", 1000, on_behalf_of="bob", project="b", wait_seconds=-1, reservation=True
            )
        ]
        assert [event.WhichOneof("event") for event in events][-1] == "granted"
        at = {project.settings.path: project for project in (await projects.projects()).projects}
        assert (at["a"].allocated_milli, at["b"].allocated_milli) == (1000, 1000)
        assert (at["a"].protected_milli, at["b"].protected_milli) == (1000, 1000)
        assert at["a"].decayed_gpu_seconds > at["b"].decayed_gpu_seconds > 0
        beats.cancel()
