"""What a list, a watch and single answers say of the same pods arrives in any order; the latest counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from gpupool.providers.contract import ProviderDownError
from gpupool.providers.kubernetes.watched import WatchedPods


def pod(name: str, version: int, uid: str = "u", phase: str = "Running") -> dict[str, Any]:
    metadata = {"name": name, "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata, "status": {"phase": phase}}


class Lists:
    """A cluster whose list is what a test says, and that does something before it is answered."""

    def __init__(self) -> None:
        self.version = 100
        self.pods: list[dict[str, Any]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.down = False

    async def list_pods(self, selector: str) -> dict[str, Any]:
        if self.down:
            raise ProviderDownError("it does not answer")
        answer = {"metadata": {"resourceVersion": str(self.version)}, "items": list(self.pods)}
        self.meanwhile()
        return answer

    async def watch_pods(self, **_: Any) -> Any:
        await asyncio.Event().wait()


@pytest.fixture
def lists() -> Lists:
    return Lists()


async def listed(lists: Lists, pods: WatchedPods) -> dict[str, str]:
    """Phases by name, after a list."""
    pods._confirmed = None
    found = {name: one["status"]["phase"] for name, one in (await pods.current()).items()}
    await pods.close()
    return found


def watched(lists: Lists) -> WatchedPods:
    return WatchedPods(lists, "")  # type: ignore[arg-type]


async def test_a_pod_that_is_made_while_a_list_is_under_way_stays(lists: Lists) -> None:
    pods = watched(lists)
    lists.meanwhile = lambda: pods.note(pod("a", 101))
    assert await listed(lists, pods) == {"a": "Running"}


async def test_a_pod_that_changes_meanwhile_is_as_it_is_now(lists: Lists) -> None:
    pods = watched(lists)
    lists.pods = [pod("a", 90)]
    lists.meanwhile = lambda: pods._take("MODIFIED", pod("a", 105, phase="Failed"))
    assert await listed(lists, pods) == {"a": "Failed"}


async def test_a_pod_whose_end_was_seen_meanwhile_does_not_come_back(lists: Lists) -> None:
    pods = watched(lists)
    lists.pods = [pod("a", 90)]
    lists.meanwhile = lambda: pods._take("DELETED", pod("a", 105, phase="Failed"))
    assert await listed(lists, pods) == {}
    pods.note(pod("a", 95))
    assert await listed(lists, pods) == {}
    gone = pods.gone("a")
    assert gone is not None
    assert gone["status"]["phase"] == "Failed"


async def test_another_pod_of_the_same_name_does(lists: Lists) -> None:
    pods = watched(lists)
    pods._take("DELETED", pod("a", 80))
    lists.pods = [pod("a", 90, uid="another")]
    assert await listed(lists, pods) == {"a": "Running"}


async def test_a_pod_that_is_in_no_list_any_more_is_gone(lists: Lists) -> None:
    pods = watched(lists)
    pods.note(pod("a", 50))
    assert await listed(lists, pods) == {}
    assert pods.gone("a") is not None


async def test_an_older_answer_changes_nothing(lists: Lists) -> None:
    pods = watched(lists)
    pods.note(pod("a", 120, phase="Failed"))
    pods.note(pod("a", 110))
    lists.pods = [pod("a", 90)]
    assert await listed(lists, pods) == {"a": "Failed"}


async def test_a_list_that_is_none_and_a_cluster_that_is_down_are_no_answer(lists: Lists) -> None:
    pods = watched(lists)
    lists.down = True
    with pytest.raises(ProviderDownError):
        await pods.current()
    lists.down = False
    pods._cluster.list_pods = lambda selector: none()  # type: ignore[method-assign]
    with pytest.raises(ProviderDownError):
        await pods.current()
    await pods.close()


async def none() -> dict[str, Any]:
    return {"metadata": {}, "items": "none"}
