"""The `History` service: series of what was held and used, of the whole pool or a part of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import grpc

from gpupool.ledger import samples
from gpupool.ledger.snapshot import snapshot
from gpupool.model.history_amounts import AMOUNTS, LEVELS, MINUTE_MS, Amounts, Subject, total
from gpupool.pool.access.auth import current_identity, refuse
from gpupool.pool.api.looks import Looks
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.pool.projects.project_rules import project_tree
from gpupool.pool.reporting import history
from gpupool.pool.reporting.history_sampler import HistorySampler, Present
from gpupool.pool.reporting.use_meter import Bucket, merge
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.proto.gpupool.v1 import pool_pb2_grpc

#: What a series may be of.
VIEWS: Final = ("cluster", "node", "device", "user", "project", "client")
#: What its members may be.
MEMBERS: Final = ("node", "device", "user", "project", "client")
#: Points of who does not say how many, and of whom says most.
POINTS: Final = 200
MOST_POINTS: Final = 2000
#: Members in an answer; the smaller ones are summed up under `history.OTHERS`.
MOST_MEMBERS: Final = 500
#: Looks at a time, beside those of reports: together they leave connections for who is admitted.
_LOOKS_AT_ONCE: Final = 2
_LOOKS_OF_ONE_USER: Final = 1
_TRIES: Final = 5


class _BadSeriesError(ValueError):
    """A field of a request is out of its bounds; `str()` is one sentence with the value."""


@dataclass(frozen=True, slots=True)
class _Viewer:
    """Whose names an answer has; `user` None: everybody's."""

    user: str | None
    projects: frozenset[str]

    def named(self, by: str, subject: Subject) -> bool:
        """Whether the viewer gets the name that a subject has among members `by`."""
        if self.user is None or by in ("node", "device"):
            return True
        if by == "project":
            return subject.project in self.projects
        return subject.user == self.user


@dataclass(frozen=True, slots=True)
class _Question:
    wanted: samples.Wanted
    step_ms: int
    by: str
    viewer: _Viewer
    present: Present


class HistoryService(pool_pb2_grpc.HistoryServicer):
    """Everybody sees the figures of the pool, its nodes and devices; of users, projects and clients, one's own."""

    def __init__(self, pool: PoolShell, sampler: HistorySampler) -> None:
        self._pool = pool
        self._sampler = sampler
        self._looks = Looks(_LOOKS_AT_ONCE, _LOOKS_OF_ONE_USER, "history look")

    async def Series(self, request: pb.SeriesRequest, context: Any) -> pb.SeriesAnswer:
        viewer = await self._viewer(request.viewer, context)
        problem = self._hidden(request, viewer)
        if problem:
            await refuse(context, grpc.StatusCode.PERMISSION_DENIED, "forbidden", problem)
        try:
            wanted, step = _wanted(request, self._sampler.now_ms())
        except _BadSeriesError as error:
            await refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "bad-request", str(error))
        if request.view == "client" and viewer.user is not None:
            wanted = replace(wanted, user=viewer.user)
        for _ in range(_TRIES):
            question = _Question(wanted, step, request.by, viewer, self._sampler.present())
            answer = await self._looks.make(context, self._look, question)
            if answer is not None:
                return answer
        text = "the history was being written each time that it was looked at; ask again"
        await refuse(context, grpc.StatusCode.UNAVAILABLE, "ledger", text)

    async def _viewer(self, wanted: str, context: Any) -> _Viewer:
        identity = current_identity()
        if wanted and not identity.may_act_for(wanted):
            text = f"{identity.name} may not see what {wanted[:40]!r} sees; leave the viewer out for your own"
            await refuse(context, grpc.StatusCode.PERMISSION_DENIED, "forbidden", text)
        user = wanted or identity.viewer
        if user is None:
            return _Viewer(None, frozenset())
        tree = project_tree(self._pool.state)
        groups = identity.groups_of(user)
        return _Viewer(user, frozenset(path for path in tree.paths if tree.admits(path, user, groups)))

    def _hidden(self, request: pb.SeriesRequest, viewer: _Viewer) -> str:
        """Why this viewer may not have the series; empty: she may."""
        if viewer.user is None or not request.name:
            return ""
        name = request.name[:80]
        if request.view == "user" and request.name != viewer.user:
            return f"{viewer.user} may not see what {name!r} used; leave the name out for the total of all"
        if request.view == "project" and request.name.strip("/") not in viewer.projects:
            return f"{viewer.user} is no member of project {name!r}; leave the name out for the total of all"
        return ""

    def _look(self, question: _Question) -> pb.SeriesAnswer | None:
        """In a thread. None: what was written has changed since the question."""
        wanted = question.wanted
        with snapshot(self._pool.ledger.engine) as connection:
            if not self._sampler.reading(question.present, connection):
                return None
            points = samples.points(connection, wanted, question.step_ms)
            subjects = samples.subjects(connection, wanted) if question.by else []
            found: Bucket = {}
            for time in question.present.times:
                minute = time.from_ms // MINUTE_MS * MINUTE_MS
                if not wanted.from_ms <= minute < wanted.to_ms:
                    continue
                rows = {
                    subject: amounts
                    for subject, amounts in time.rows(connection).items()
                    if wanted.has(subject)
                }
                at = minute // question.step_ms * question.step_ms
                points[at] = points.get(at, Amounts()) + total(rows.values())
                merge(found, rows)
        merge(found, history.summed(subjects))
        return _answer(question, points, found)


def _wanted(request: pb.SeriesRequest, now_ms: int) -> tuple[samples.Wanted, int]:
    """What is asked, its bounds moved to those of points; and the length of a point."""
    if request.view not in VIEWS:
        raise _BadSeriesError(f"{request.view[:40]!r} is no view; write one of {', '.join(VIEWS)}")
    if request.by and request.by not in MEMBERS:
        raise _BadSeriesError(f"members by {request.by[:40]!r} are none; write one of {', '.join(MEMBERS)}")
    if request.view == "cluster" and request.name:
        raise _BadSeriesError(f"the cluster has no name, and {request.name[:40]!r} was given")
    if not 0 <= request.points <= MOST_POINTS:
        raise _BadSeriesError(f"points {request.points} is not within 0..{MOST_POINTS}")
    for field, value in (("from", request.from_unix), ("to", request.to_unix)):
        if not (math.isfinite(value) and 0 <= value <= 1e11):
            raise _BadSeriesError(f"{field}_unix {value:g} is no time in seconds since 1970")
    to_ms = min(now_ms, round(request.to_unix * 1000)) if request.to_unix else now_ms
    from_ms = round(request.from_unix * 1000)
    if not from_ms < to_ms:
        raise _BadSeriesError(
            f"the time asked for ends ({to_ms / 1000:g}) before or when it begins ({request.from_unix:g})"
        )
    from_ms = max(from_ms, now_ms - LEVELS[-1].kept_ms)
    if not from_ms < to_ms:
        raise _BadSeriesError(f"the history goes back {LEVELS[-1].kept_ms // 86_400_000} days")
    step = history.step_of(from_ms, to_ms, now_ms, request.points or POINTS)
    what = {} if request.view == "cluster" else {_FIELDS[request.view]: request.name.strip("/")}
    return samples.Wanted(from_ms // step * step, -(-to_ms // step) * step, **what), step


_FIELDS: Final[Mapping[str, str]] = {
    "node": "node",
    "device": "device",
    "user": "user",
    "project": "project",
    "client": "session",
}
_NAMES: Final[Mapping[str, Callable[[Subject], str]]] = {
    "node": lambda subject: subject.device.rpartition("/")[0],
    "device": lambda subject: subject.device,
    "user": lambda subject: subject.user,
    "project": lambda subject: subject.project,
    "client": lambda subject: subject.session,
}


def _answer(question: _Question, points: Mapping[int, Amounts], found: Bucket) -> pb.SeriesAnswer:
    wanted, step = question.wanted, question.step_ms
    whole = total(points.values())
    answer = pb.SeriesAnswer(
        from_unix=wanted.from_ms / 1000,
        to_unix=wanted.to_ms / 1000,
        step_seconds=step / 1000,
        points=[
            pb.SeriesPoint(from_unix=at / 1000, amounts=_amounts(points.get(at, Amounts())))
            for at in range(wanted.from_ms, wanted.to_ms, step)
        ],
        total=_amounts(whole),
    )
    if question.by:
        answer.members.extend(_members(question, found, whole.covered_ms))
    return answer


def _members(question: _Question, found: Bucket, covered_ms: int) -> list[pb.SeriesMember]:
    name_of = _NAMES[question.by]
    members: dict[Subject, Amounts] = {}
    labels: dict[str, str] = {}
    for subject, amounts in found.items():
        name = name_of(subject)
        if not name:
            continue
        if name == history.OTHERS or not question.viewer.named(question.by, subject):
            key = Subject(history.OTHERS)
        elif question.by == "client":
            key = Subject(name, subject.user)
            labels[name] = labels.get(name) or subject.label
        else:
            key = Subject(name)
        merge(members, {key: amounts})
    first = sorted(
        members,
        key=lambda key: (
            key.device == history.OTHERS,
            -members[key].held_milli_ms,
            -members[key].used_milli_ms,
            key.device,
        ),
    )
    for key in first[MOST_MEMBERS:]:
        merge(members, {Subject(history.OTHERS): members.pop(key)})
    listed = [*first[:MOST_MEMBERS], *([Subject(history.OTHERS)] if len(first) > MOST_MEMBERS else [])]
    return [
        pb.SeriesMember(
            name=key.device,
            user=key.user,
            label=labels.get(key.device, ""),
            amounts=_amounts(replace(members[key], covered_ms=covered_ms)),
        )
        for key in dict.fromkeys(listed)
    ]


def _amounts(amounts: Amounts) -> pb.Amounts:
    return pb.Amounts(**{name: getattr(amounts, name) for name in AMOUNTS})
