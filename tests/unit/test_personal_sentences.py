"""The pool's sentences for their reader: "you", notebooks in the place of leases, GPUs by their number."""

from __future__ import annotations

import pytest
from gpupool.client import types
from gpupool.device_names import device_name, device_names
from gpupool.sentences import Sentence, clauses, param, say

from jupyter_gpupool.server.handlers.explained import explanation_view, reason_text
from jupyter_gpupool.server.handlers.personal import Reader, personal

READER = Reader("ann", {"l1": ("k1", "a.ipynb"), "l2": ("k2", "b.ipynb")})


def holds(user: str) -> Sentence:
    return say("holds", user=param.user(user), milli=param.milli(500))


def release(*leases: str) -> Sentence:
    return say("help.release", milli=param.milli(500), leases=[param.text(lease) for lease in leases])


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (holds("ann"), "you hold 0.50"),
        (holds("bob"), "bob holds 0.50"),
        (holds(""), "another user holds 0.50"),
        (release("l1", "l2"), "you hold 0.50 in a.ipynb and b.ipynb; detaching would make room"),
        # Of one that is no notebook's of this server the command line tells more than a name.
        (release("l1", "l9"), "releasing 0.50 of your own (l1, l9) would make room"),
        (say("devices", device=param.device("vm/0")), "GPU 0 on vm"),
        (clauses(holds("bob"), holds("ann")), "bob holds 0.50; you hold 0.50"),
        (say("turn", user=param.user("bob"), size=param.text("1 GPU")), None),
    ],
)
def test_words(said: Sentence, words: str | None) -> None:
    assert str(personal(said, READER)) == (str(said) if words is None else words)


def test_a_list_of_devices_is_named_inside_other_sentences() -> None:
    listed = say("making-room", of=holds("ann"), devices=[param.device("a/0"), param.device("GPU-7")])
    assert str(personal(listed, READER)) == "you hold 0.50 to make room on GPU 0 on a, GPU-7"


def test_a_help_says_which_kernels_could_be_detached() -> None:
    helps = (types.Help("release", "", said=release("l2")), types.Help("smaller", "", said=release("l2")))
    explanation = types.Explanation(
        reason="full",
        sentence="",
        facts={},
        helps=helps,
        project="",
        place=1,
        eta_seconds=None,
        said=holds("ann"),
    )
    view = explanation_view(explanation, READER)
    assert view is not None
    assert [help_["kernels"] for help_ in view["helps"]] == [["k2"], []]
    assert reason_text("root holds 0.50", explanation, READER) == "you hold 0.50"
    assert reason_text("old pool", None, READER) == "old pool"


def test_devices_are_named_by_their_nodes() -> None:
    assert device_name("rack/vm/3") == "GPU 3 on rack/vm"
    assert [device_name(name) for name in ("vm", "/0", "vm/x")] == ["vm", "/0", "vm/x"]
    assert device_names(["a/0", "a/1", "b/0", "odd"]) == "GPU 0 and 1 on a, GPU 0 on b, odd"
