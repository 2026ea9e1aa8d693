"""What the rules look for in the state at every step: the few records that matter now, among all that are there.

Thousands may wait, and thousands of leases that have ended are remembered for an hour; a step looks at neither. Each index
says what a walk over its table would (`index`); the definitions are here, and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpupool.model.index import Index, Moments, Subset
from gpupool.scheduler.model import Decision

if TYPE_CHECKING:
    from gpupool.model.state import (
        AccountRecord,
        DeviceRecord,
        LeaseRecord,
        RequestRecord,
        SessionRecord,
        State,
    )


class StateIndex:
    """The indexes of one state.

    Attributes:
        holding: leases whose shares are taken; also by node, by user and by project.
        releasing: leases that are over for their holders, and whose shares are still taken.
        noticed: leases that will be taken back soon.
        ending: leases whose shares are taken, by their deadline.
        leases_of_gang: all parts of a gang, by its first lease; leases that are the whole are not in it.
        leases_of_session: ended ones too.
        ended: leases, by when they ended.
        sessions_of_gang: by the first session.
        sessions_of_user: closed ones too.
        sessions_of_node: by the node where they are, closed ones too.
        sessions_left_on: by the node where a worker that was left still is.
        unattached: parked sessions and lost ones.
        resting: sessions with a lease that have computed nothing for a while, however short.
        moving_memory: sessions whose memory is on its way, or has failed to leave.
        on_disk: sessions whose memory lies on disk or goes there, by node.
        with_place: sessions for which room was kept somewhere, and which have had no lease since.
        closed: sessions, by when they were closed.
        owed: asks for which room is being made.
        wanting: requests that keep devices from later ones.
        asks_of_session: by the session that is to go on.
        give_up: asks, by when nobody waits any more.
        accounts: by what they are of, ``user`` or ``project``.
        user_accounts: those of users, by when something was booked in them last.
        devices_of_node: those that its agent does not lend now, too.
    """

    def __init__(self, state: State) -> None:
        leases, sessions, requests = state.leases, state.sessions, state.requests
        self.holding: Subset[LeaseRecord] = Subset(leases, lambda x: x.holds)
        self.holding_of_node: Index[LeaseRecord, str] = Index(leases, lambda x: x.node if x.holds else None)
        self.holding_of_user: Index[LeaseRecord, str] = Index(leases, lambda x: x.user if x.holds else None)
        self.holding_of_project: Index[LeaseRecord, str] = Index(
            leases, lambda x: x.project if x.holds else None
        )
        self.releasing: Subset[LeaseRecord] = Subset(leases, lambda x: x.holds and not x.live)
        self.ending: Moments[LeaseRecord] = Moments(leases, lambda x: x.ends_at if x.holds else None)
        self.noticed: Subset[LeaseRecord] = Subset(leases, lambda x: x.notice is not None)
        self.leases_of_gang: Index[LeaseRecord, str] = Index(leases, lambda x: x.gang or None)
        self.leases_of_session: Index[LeaseRecord, str] = Index(leases, lambda x: x.session_id)
        self.ended: Moments[LeaseRecord] = Moments(leases, lambda x: x.ended_at)
        self.sessions_of_gang: Index[SessionRecord, str] = Index(sessions, lambda x: x.gang or None)
        self.sessions_of_user: Index[SessionRecord, str] = Index(sessions, lambda x: x.user)
        self.sessions_of_node: Index[SessionRecord, str] = Index(sessions, lambda x: x.node)
        self.sessions_left_on: Index[SessionRecord, str] = Index(
            sessions, lambda x: None if x.left is None else x.left.node
        )
        self.unattached: Subset[SessionRecord] = Subset(sessions, lambda x: x.state in ("parked", "lost"))
        self.resting: Subset[SessionRecord] = Subset(
            sessions,
            lambda x: bool(x.lease_id) and x.usage.idle_seconds > 0 and not x.usage.in_flight,
        )
        self.moving_memory: Subset[SessionRecord] = Subset(
            sessions, lambda x: x.parking is not None or bool(x.park_failure)
        )
        self.on_disk: Index[SessionRecord, str] = Index(
            sessions, lambda x: x.node if x.place == "image" or goes_to_disk(x) else None
        )
        self.with_place: Subset[SessionRecord] = Subset(sessions, lambda x: bool(x.kept_place))
        self.closed: Moments[SessionRecord] = Moments(sessions, lambda x: x.closed_at)
        self.owed: Subset[RequestRecord] = Subset(requests, lambda x: is_owed(x.decision))
        self.wanting: Subset[RequestRecord] = Subset(requests, lambda x: bool(x.wants))
        self.requests_of_session: Index[RequestRecord, str] = Index(requests, lambda x: x.session_id or None)
        self.give_up: Moments[RequestRecord] = Moments(requests, lambda x: x.give_up_at)
        self.accounts: Index[AccountRecord, str] = Index(state.accounts, lambda x: x.id.partition("/")[0])
        self.user_accounts: Moments[AccountRecord] = Moments(
            state.accounts, lambda x: x.as_of if x.id.startswith("user/") else None
        )
        self.devices_of_node: Index[DeviceRecord, str] = Index(state.devices, lambda x: x.node)
        self.all: tuple[Index[Any, Any] | Subset[Any] | Moments[Any], ...] = tuple(vars(self).values())

    def follow(self) -> None:
        """Lets all take note of what has changed. Once a tick: in a pool without gangs, say, nobody asks for their leases."""
        for one in self.all:
            one.follow()


def is_owed(decision: Decision | None) -> bool:
    """Whether room is being made for the request that was told so."""
    return decision is not None and (decision.reason == "notice" or bool(decision.evict))


def goes_to_disk(session: SessionRecord) -> bool:
    """Whether a session's memory is on its way into an image."""
    return session.parking is not None and session.parking.place == "image"
