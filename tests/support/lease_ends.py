"""The ways in which the pool ends a lease that its holder would keep, in the session world."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

from gpupool.client.admin import AdminClient
from gpupool.client.projects import LimitSettings, ProjectsClient, ProjectSettings
from gpupool.client.types import LeaseRequest
from gpupool.shares import Share

from tests.support.device_session import DeviceSession
from tests.support.pool_portal import PoolPortal
from tests.support.session_sight import Inconsistent
from tests.support.session_world import SessionWorld

#: For each: what the lease is asked for with, and the reason of its end.
TAKEN: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "deadline": ({"duration_seconds": 8.0}, "deadline"),
    "budget": ({"on_behalf_of": "ann"}, "budget"),
    "preempt": ({"project": "team", "kind": "preemptible"}, "preempt"),
    "reclaim": ({"project": "guest"}, "reclaim"),
    "drain": ({}, "drain"),
    "token revoked": ({"on_behalf_of": "ann"}, "lost"),
    "no pool": ({}, "lost"),
}
#: More than is free beside leases of 300 and 400 milli-GPU, and less than what the second leaves: a kernel that is stopped
#: in the middle of its work keeps its memory where it is.
_TOO_MUCH: Final = 600
_LONG: Final = 60.0


def make_projects(world: SessionWorld) -> None:
    """Those of `TAKEN`, and one that deserves a device."""
    for settings in (
        ProjectSettings("team", min_run_seconds=0.0),
        ProjectSettings("guest", min_run_seconds=0.0),
        ProjectSettings("owner", deserved_milli=1000),
    ):
        world.portal(ProjectsClient(world.portal.pool).set_project(settings))


def take(world: SessionWorld, session: DeviceSession, how: str, later: ExitStack, address: str) -> None:
    """Returns when the lease has ended. `later`: what makes the pool as it was; `address`: where it wants tokens."""
    match how:
        case "budget":
            projects = ProjectsClient(world.portal.pool)
            world.portal(projects.set_limit(LimitSettings("ann", gpu_seconds=1)))
            later.callback(lambda: world.portal(projects.remove_limit("ann")))
        case "preempt":
            _give_to_another(world, session, "team")
        case "reclaim":
            _give_to_another(world, session, "owner")
        case "drain":
            admin = AdminClient(world.portal.pool)
            world.portal(admin.drain(session.node, evict=True))
            later.callback(lambda: world.portal(admin.drain(session.node, drained=False)))
        case "token revoked":
            _revoke(world, session, address)
        case "no pool":
            world.stop_pool()
            later.callback(world.stack.restart_pool)
            world.wait(lambda: world.worker_stats(session).fields["work"] == "stopped", "the fence", _LONG)
            return
    world.wait_ended(session)
    (reason,) = [lease.reason for lease in world.portal(world.portal.pool.leases([session.grant.lease_id]))]
    if reason != TAKEN[how][1]:
        raise Inconsistent(f"the lease of {session.name} ended by {how}, and the pool's reason is {reason!r}")


def _give_to_another(world: SessionWorld, session: DeviceSession, project: str) -> None:
    """Somebody asks for room on the same device, and has it when nothing computes there any more."""
    request = LeaseRequest(Share(milli=_TOO_MUCH), project=project, filters=(f"node={session.node}",))
    grant = world.portal(world.portal.pool.request(request, wait_seconds=_LONG))
    state = world.worker_stats(session)
    world.portal(world.portal.pool.release(grant.lease_id, close_session=True))
    if state.fields["work"] != "stopped":
        raise Inconsistent(f"{session.name} computes on what is another's: {state.fields}")


def _revoke(world: SessionWorld, session: DeviceSession, address: str) -> None:
    """Its holder's token: nobody renews the lease then."""
    made = json.loads(world.stack.gpupool("token", "create", "--user", "ann", "--json").stdout)
    file = world.stack.home / "ann.token"
    file.touch(0o600)
    file.write_text(made["token"])
    lease = session.grant.lease_id
    with PoolPortal(address, 5 * world.stack.scale, token_file=file) as holder:
        if holder(holder.pool.renew([lease]))[lease].state != "attached":
            raise Inconsistent(f"ann cannot renew the lease of {session.name}")
        holder.hold(lease)
        world.portal.drop(lease)
        world.portal(AdminClient(world.portal.pool).revoke_token(made["id"]))
        world.wait_ended(session)
