"""What a pod means: pure, from Kubernetes' JSON to a report.

Foreign values are taken as they come: what is not there is not said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from gpupool.providers.contract import JobReport
from gpupool.providers.kubernetes.manifests import CONTAINER

#: A pod as the API has it.
Pod: TypeAlias = Mapping[str, Any]

#: Words that say only that something goes on; a better reason may be among the pod's events.
VAGUE: Final = frozenset({"", "ContainerCreating", "PodInitializing", "not scheduled yet"})
#: Why a container waits that Kubernetes can never start: only another pod can help.
_NEVER: Final = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_MOST_WORDS: Final = 300
_UNSCHEDULABLE: Final = re.compile(r"0/(\d{1,6}) nodes are available: (.*)", re.DOTALL)
_NODES: Final = re.compile(r"(\d{1,6}) (?:node\(s\) )?(.+)", re.DOTALL)
_SIGNALLED: Final = 128


def is_object(value: Any) -> bool:
    """Whether it has what every object of Kubernetes has: metadata with a name and a uid."""
    metadata = value.get("metadata") if isinstance(value, Mapping) else None
    return isinstance(metadata, Mapping) and all(
        isinstance(metadata.get(key), str) for key in ("name", "uid")
    )


def report(pod: Pod, now: float) -> JobReport:
    """What has become of a pod. `now`: seconds since 1970, by the clock of the API server."""
    status = _table(pod, "status")
    phase = status.get("phase")
    if phase in ("Succeeded", "Failed"):
        return JobReport("ended", how_ended(pod))
    if _table(_table(_agent(status), "state"), "terminated"):
        # What a cluster adds to each pod may go on without it; the pool has the pod deleted.
        return JobReport("ended", how_ended(pod))
    left = seconds_left(pod, now)
    going = why_going(pod)
    if _agent_runs(status):
        return JobReport("running", going, left)
    if going:
        return JobReport("pending", going)
    waiting = _table(_table(_agent(status), "state"), "waiting")
    return JobReport("pending", why_waiting(pod), never=waiting.get("reason") in _NEVER)


def is_over(pod: Pod) -> bool:
    """Whether its processes have ended; its object may still be there."""
    return _table(pod, "status").get("phase") in ("Succeeded", "Failed")


def is_going(pod: Pod) -> bool:
    """Whether somebody has asked for its end."""
    return bool(_table(pod, "metadata").get("deletionTimestamp"))


def ended_at(pod: Pod) -> float | None:
    """When its agent ended, in seconds since 1970; None: it has not, or Kubernetes does not say."""
    status = _table(pod, "status")
    ended = seconds_of(_table(_table(_agent(status), "state"), "terminated").get("finishedAt"))
    if ended is not None or not is_over(pod):
        return ended
    # Evicted before it began, or refused by its node: no container says when.
    metadata = _table(pod, "metadata")
    times = [condition.get("lastTransitionTime") for condition in _tables(status, "conditions")]
    found = [seconds_of(time) for time in (*times, metadata.get("creationTimestamp"))]
    return max((time for time in found if time is not None), default=None)


def seconds_left(pod: Pod, now: float) -> float | None:
    """Until Kubernetes ends it, for its time limit or because somebody has asked; None: it may run for ever."""
    limits = []
    deadline = _table(pod, "spec").get("activeDeadlineSeconds")
    started = seconds_of(_table(pod, "status").get("startTime"))
    if isinstance(deadline, int) and started is not None:
        # No more than there was at the start, whatever the clocks say.
        limits.append(min(float(deadline), started + deadline - now))
    # A deletion's time is when its grace is over.
    ends = seconds_of(_table(pod, "metadata").get("deletionTimestamp"))
    grace = _table(pod, "metadata").get("deletionGracePeriodSeconds")
    if ends is not None:
        limits.append(min(float(grace), ends - now) if isinstance(grace, int) else ends - now)
    return max(0.0, min(limits)) if limits else None


def why_going(pod: Pod) -> str:
    """Why Kubernetes ends it, if it does."""
    if not is_going(pod):
        return ""
    for condition in _tables(_table(pod, "status"), "conditions"):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            return _words(f"{condition.get('reason', '')}: {condition.get('message', '')}")
    return "its pod is deleted"


def how_ended(pod: Pod) -> str:
    """How a pod ended that has."""
    status = _table(pod, "status")
    ended = _table(_table(_agent(status), "state"), "terminated")
    parts = []
    if status.get("reason"):
        parts.append(_words(f"{status['reason']}: {status.get('message', '')}"))
    code, signal = ended.get("exitCode"), ended.get("signal")
    if isinstance(signal, int) and signal:
        parts.append(f"ended by signal {signal}")
    elif isinstance(code, int):
        by = f" (signal {code - _SIGNALLED})" if code > _SIGNALLED else ""
        parts.append(f"exit code {code}{by}")
    if ended.get("reason") not in (None, "", "Error", "Completed"):
        parts.append(_words(ended["reason"]))
    if last := str(ended.get("message", "")).strip().splitlines()[-1:]:
        parts.append(_words(last[0]))
    return "; ".join(parts) or f"its pod is {status.get('phase', 'gone')}"


def why_waiting(pod: Pod) -> str:
    """Why a pod does not run yet, for those that wait."""
    status = _table(pod, "status")
    for condition in _tables(status, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            if condition.get("reason") == "Unschedulable":
                return explain_unschedulable(str(condition.get("message", "")))
            return _words(f"{condition.get('reason', '')}: {condition.get('message', '')}")
    waiting = _table(_table(_agent(status), "state"), "waiting")
    if waiting:
        said = _words(f"{waiting.get('reason', '')}: {waiting.get('message', '')}")
        return "ContainerCreating" if said.startswith("ContainerCreating") else said
    return "ContainerCreating" if _table(pod, "spec").get("nodeName") else "not scheduled yet"


def explain_unschedulable(message: str) -> str:
    """The scheduler's sentence, shorter: how many nodes there are, and what each kind of them lacks.

    ``0/3 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 Insufficient nvidia.com/gpu. preemption: …`` becomes
    ``none of 3 nodes fits: 1 had untolerated taint {a: b}, 2 Insufficient nvidia.com/gpu``.
    """
    found = _UNSCHEDULABLE.match(message.strip())
    if found is None:
        return _words(message) or "Unschedulable"
    text = re.split(r"\.\s+(?:preemption|no new claims)", found[2], maxsplit=1)[0].rstrip(". ")
    lacks = []
    for part in re.split(r", (?=\d)", text):
        each = _NODES.fullmatch(part.strip())
        lacks.append(f"{each[1]} {each[2]}" if each else part.strip())
    many = "the cluster's one node does not fit" if found[1] == "1" else f"none of {found[1]} nodes fits"
    return _words(f"{many}: {', '.join(lacks)}")


def explain_events(events: Sequence[Mapping[str, Any]]) -> str:
    """The latest warning about a pod; empty: there is none."""
    warnings = [event for event in events if event.get("type") == "Warning" and event.get("message")]
    latest = max(warnings, key=_when, default=None)
    return "" if latest is None else _words(f"{latest.get('reason', '')}: {latest['message']}")


def seconds_of(text: object) -> float | None:
    """Seconds since 1970 of Kubernetes' times, such as ``2026-11-26T10:00:00Z``; None: it is none."""
    if not isinstance(text, str) or len(text) > 40:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _when(event: Mapping[str, Any]) -> float:
    series = _table(event, "series")
    times = (
        event.get("lastTimestamp"),
        series.get("lastObservedTime"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
    )
    return max((seconds_of(time) or 0.0 for time in times), default=0.0)


def _agent_runs(status: Mapping[str, Any]) -> bool:
    """A node that has fallen silent leaves its pods as they were."""
    return status.get("phase") in ("Running", "Unknown") and not _table(
        _table(_agent(status), "state"), "waiting"
    )


def _agent(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of its container: a cluster may add others."""
    found = _tables(status, "containerStatuses")
    return next((one for one in found if one.get("name") == CONTAINER), {})


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def _tables(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = value.get(key)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _words(text: object) -> str:
    return " ".join(str(text).split()).strip(": ")[:_MOST_WORDS]
