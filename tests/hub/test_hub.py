"""Two users of a real JupyterHub, an administrator, its culler: each sees only their own, and the shared totals."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import urllib.error
from collections.abc import Iterator
from unittest import mock

import pytest
from gpupool.client.errors import PoolRefusedError
from gpupool.client.pool import PoolClient
from gpupool.client.types import Caller, LeaseRequest
from gpupool.shares import Share

from tests.support.hub_stack import BELIEVED, HubStack, User
from tests.support.stack import wait_until

pytestmark = pytest.mark.timeout(400)

#: The culler stops a server after so long without activity, seconds.
CULLED_AFTER = 25
#: Works on the device in a thread: the cell is over, nothing is printed, no cell runs.
GPU_WORKS = """
import ctypes, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
def work():
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(4096)) == 0
    print("works", flush=True)
    while True:
        cuda.cuMemsetD32_v2(pointer, 1, ctypes.c_size_t(1024))
        cuda.cuCtxSynchronize()
        time.sleep(0.2)
threading.Thread(target=work, daemon=True).start()
time.sleep(2)
"""


@pytest.fixture(scope="module")
def hub() -> Iterator[HubStack]:
    with HubStack() as running:
        running.pool.gpupool("project", "set", "research", "--member", "@vision")
        yield running


@pytest.fixture(scope="module")
def users(hub: HubStack) -> dict[str, User]:
    """Servers take a while to start, so they do it side by side. Each test but the culler's needs them to run on."""
    return {user.name: user for user in hub.users("ann", "bob", "root", "carl", "dora")}


@pytest.fixture
def ann(users: dict[str, User]) -> User:
    return users["ann"]


@pytest.fixture
def bob(users: dict[str, User]) -> User:
    return users["bob"]


def ask_pool(hub: HubStack, token: str, call: str, *arguments: object, **more: object) -> object:
    """One call to the pool itself with a token of the Hub; PoolRefusedError when the answer is no."""

    async def run() -> object:
        async with PoolClient(hub.endpoint, hub_identity=True, ca_file=hub.ca_file) as client:
            return await getattr(client, call)(*arguments, **more)

    with mock.patch.dict(os.environ, JUPYTERHUB_API_TOKEN=token):
        return asyncio.run(run())


def test_each_user_sees_their_own_kernels_and_labels_and_the_shared_totals(
    users: dict[str, User], ann: User, bob: User
) -> None:
    secret, other = ann.notebook("secret-of-ann.ipynb"), bob.notebook("plans-of-bob.ipynb")
    assert ann.attach(secret, "0.3")["state"] == "attached"
    assert bob.attach(other, "0.2")["state"] == "attached"
    for user, own, foreign in ((ann, secret, other), (bob, other, secret)):
        assert [kernel["kernel_id"] for kernel in user.gpupool("GET", "kernels")["kernels"]] == [own]
        pool = user.gpupool("GET", "pool")
        assert pool["ok"] and pool["user"] == user.name
        assert pool["totals"] == {"milli": 1000, "free_milli": 500}
        shares = {share["user"]: share for device in pool["devices"] for share in device["shares"]}
        assert set(shares) == {"ann", "bob"}
        assert {name: share["mine"] for name, share in shares.items()} == {
            "ann": user is ann,
            "bob": user is bob,
        }
        hidden = shares["bob" if user is ann else "ann"]
        assert (hidden["label"], hidden["kernel_id"]) == ("", None)
        assert shares[user.name]["label"].endswith(f"-of-{user.name}.ipynb")
        assert foreign not in str(pool)
    root = users["root"]
    labels = {
        share["label"] for device in root.gpupool("GET", "pool")["devices"] for share in device["shares"]
    }
    assert labels == {"secret-of-ann.ipynb", "plans-of-bob.ipynb"}
    for user, kernel_id in ((ann, secret), (bob, other)):
        user.gpupool("POST", f"kernels/{kernel_id}/detach")
        user.api("DELETE", f"api/kernels/{kernel_id}")


def test_one_user_cannot_enter_anothers_server(ann: User, bob: User) -> None:
    for path in ("kernels", "pool"):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            ann.api("GET", f"gpupool/api/{path}", token=bob.token)
        assert refusal.value.code == 403


def test_groups_of_the_hub_give_projects(ann: User, bob: User) -> None:
    for user, expected in ((ann, "research"), (bob, "default")):
        kernel_id = user.notebook("projects.ipynb")
        assert user.attach(kernel_id, "0.1")["state"] == "attached"
        (lease,) = [x for x in _leases(user) if x["holder"] == kernel_id and x["state"] == "attached"]
        assert lease["project"] == expected
        user.gpupool("POST", f"kernels/{kernel_id}/detach")
        user.api("DELETE", f"api/kernels/{kernel_id}")
    kernel_id = bob.notebook("projects.ipynb")
    with pytest.raises(urllib.error.HTTPError) as refusal:
        bob.gpupool("POST", f"kernels/{kernel_id}/attach", {"share": "0.1", "project": "research"})
    assert refusal.value.code == 403
    assert b"bob is not a member of project research" in refusal.value.read()
    bob.api("DELETE", f"api/kernels/{kernel_id}")


def _leases(user: User) -> list[dict[str, str]]:
    return list(json.loads(user.hub.pool.gpupool("lease", "list", "--json").stdout)["leases"])


def test_the_pool_knows_users_by_the_hubs_word_and_not_by_theirs(hub: HubStack, ann: User, bob: User) -> None:
    token = bob.hub_token()
    assert ask_pool(hub, token, "whoami") == Caller("bob", "user")
    assert ask_pool(hub, ann.hub_token(), "whoami") == Caller("ann", "user", ("vision",))
    with pytest.raises(PoolRefusedError, match="bob may not ask on behalf of 'ann'"):
        ask_pool(hub, token, "request", LeaseRequest(Share(milli=100), on_behalf_of="ann"), wait_seconds=0)
    with pytest.raises(PoolRefusedError, match="does not know this token"):
        ask_pool(hub, "0" * 32, "whoami")
    # What a service may get from a user who signs in there is not enough to act for them here.
    narrow = hub.hub_api("POST", "users/bob/tokens", {"scopes": ["read:users:name!user=bob"]})["token"]
    with pytest.raises(PoolRefusedError, match="none of their own servers'"):
        ask_pool(hub, narrow, "whoami")
    with pytest.raises(PoolRefusedError, match="of a 'service'"):
        ask_pool(hub, hub.token, "whoami")


def test_the_command_line_in_a_users_terminal_is_that_user(hub: HubStack, bob: User) -> None:
    kernel_id = bob.notebook("terminal.ipynb")
    said = bob.run(kernel_id, "!{__import__('sys').executable} -m gpupool.cli.main gpu list --json")
    assert '"free_milli"' in said, said
    said = bob.run(
        kernel_id, "!{__import__('sys').executable} -m gpupool.cli.main node drain n1 --reason mine"
    )
    assert "may not call Drain" in said, said
    bob.api("DELETE", f"api/kernels/{kernel_id}")


def test_no_token_reaches_a_log(hub: HubStack, ann: User) -> None:
    token = ann.hub_token()
    for text in (
        hub.pool.log("pool"),
        hub.pool.log("node"),
        (hub.home / "hub.log").read_text(errors="replace"),
    ):
        assert token not in text
        assert "gpupool_hub_" not in text


def test_a_server_that_the_hub_has_stopped_leaves_no_token_behind(
    hub: HubStack, users: dict[str, User]
) -> None:
    carl = users["carl"]
    token = carl.hub_token()
    assert ask_pool(hub, token, "whoami") == Caller("carl", "user")
    hub.hub_api("DELETE", "users/carl/server")
    begun = time.monotonic()

    def refused() -> bool:
        try:
            ask_pool(hub, token, "whoami")
        except PoolRefusedError as refusal:
            return "does not know this token" in refusal.explanation
        return False

    wait_until(refused, BELIEVED + 10, "the token to end", interval=0.5)
    assert time.monotonic() - begun < BELIEVED + 8  # the Hub needs a moment to end the server


def test_the_culler_stops_an_idle_server_although_a_page_polls_and_none_whose_gpu_works(
    hub: HubStack, users: dict[str, User], ann: User
) -> None:
    kernel_id = ann.notebook("works.ipynb")
    assert ann.attach(kernel_id, "0.2")["state"] == "attached"
    assert "works" in ann.run(kernel_id, GPU_WORKS)
    dora = users["dora"]
    dora.notebook("idle.ipynb")
    over = threading.Event()

    def page() -> None:
        """What the sidebar and the widget ask for, as often as they do."""
        while not over.wait(1.0):
            try:
                for path in ("kernels", "pool"):
                    dora.gpupool("GET", path)
            except OSError:
                continue

    poller = threading.Thread(target=page)
    poller.start()
    try:
        with hub.culler(CULLED_AFTER):
            wait_until(lambda: not hub.runs("dora"), 120, "the idle server to be culled", interval=2)
            time.sleep(CULLED_AFTER)
    finally:
        over.set()
        poller.join()
    assert hub.runs("ann"), hub.log()
    assert ann.kernel(kernel_id)["state"] == "attached"
    ann.api("DELETE", f"api/kernels/{kernel_id}")


def test_without_the_hub_who_is_known_goes_on(hub: HubStack, ann: User) -> None:
    kernel_id = ann.notebook("goes-on.ipynb")
    token = ann.hub_token()
    assert ask_pool(hub, token, "whoami") == Caller("ann", "user", ("vision",))
    hub.kill_hub()
    time.sleep(2 * BELIEVED)
    assert ask_pool(hub, token, "whoami") == Caller("ann", "user", ("vision",))
    with pytest.raises(PoolRefusedError, match="JupyterHub does not answer"):
        ask_pool(hub, "1" * 32, "whoami")
    said = ann.run(kernel_id, "%gpu attach 0.1\n%gpu status")
    assert "attached" in said, said
