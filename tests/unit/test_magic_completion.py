"""What the Tab key offers in ``%%gpu`` and ``%gpu`` lines, as a table, and through IPython's own completer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from gpupool.client.choices import admitting, of_devices
from gpupool.client.projects import ProjectSettings
from gpupool.client.types import Device
from gpupool.request.gpu_request import table
from gpupool.request.option import Place
from IPython.core.interactiveshell import InteractiveShell

from jupyter_gpupool.kernel.completion import SHARES, Choices, Offers, model_of, offers
from jupyter_gpupool.kernel.errors import GpuError
from jupyter_gpupool.kernel.matcher import GpuMatcher, install, uninstall

FLAGS = tuple(option.flag for option in table(Place.CELL) if option.flag)

POOL = Choices(
    projects=["default", "research/language", "research/vision"],
    names=["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "gpupool software GPU"],
    nodes=["n1", "n2"],
    labels={"zone": ["a", "b c"]},
    node_pools=["a100", "default"],
)


def offered(line: str) -> tuple[str, ...]:
    found = offers(line, lambda: POOL)
    assert found is not None
    assert line.endswith(found.fragment)
    return found.texts


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("%%gpu 0.", ("0.1", "0.2", "0.25", "0.5")),
        ("%%gpu 0.2 --pro", ("--project",)),
        ("%%gpu 0.2 --project ", ("default", "research/language", "research/vision")),
        ("%%gpu --project research/v", ("research/vision",)),
        ("%%gpu --project=re", ("--project=research/language", "--project=research/vision")),
        ("%%gpu 0.2 --kind p", ("preemptible",)),
        ("%%gpu 0.2 --nodes ", ("auto", "one", "any")),
        ("%%gpu 0.2 -n ", tuple("12345678")),
        ("%%gpu 0.2 --type H", ("H100",)),
        ("%%gpu 0.2 --wait 1", ("1m", "10m", "1h")),
        ("%%gpu 0.2 --wait f", ("forever",)),
        ("%%gpu 0.2 --for f", ()),
        ("%%gpu 0.2 --node-pool a", ("a100",)),
        ("%%gpu 0.2 --filter name=", ("name=*A100*", "name=*H100*", "name=*gpupool*software*GPU*")),
        ("%%gpu 0.2 --filter m", ("'memory>=",)),
        ("%%gpu 0.2 --filter 'm", ("'memory>=",)),
        ("%%gpu 0.2 --filter node=n", ("node=n1", "node=n2")),
        ("%%gpu 0.2 --filter label.zone=", ("label.zone=a", "'label.zone=b c'")),
        ('%%gpu 0.2 --filter "label.zone=b', ('"label.zone=b c"',)),
        ("%gpu re", ("reset", "resize")),
        ("%gpu attach --h", ()),
        ("%gpu attach 0.2 --f", ("--for", "--filter")),
        ("%gpu auto ", ("on", "off")),
        ("%gpu auto on 0.2 --f", ("--filter",)),
        ("%gpu auto off ", ()),
        ("%gpu resize 0.2", ("0.2", "0.25")),
        ("%gpu keep 1", ("10",)),
        ("%gpu status ", ()),
    ],
)
def test_what_fits_at_the_cursor_is_offered(line: str, texts: tuple[str, ...]) -> None:
    assert offered(line) == texts


def test_an_empty_line_offers_shares_and_then_all_options() -> None:
    assert offered("%%gpu ") == (*SHARES, *FLAGS)


def test_a_share_and_an_option_are_offered_once_but_filters_again() -> None:
    texts = offered("%%gpu 0.2 --strict --filter node=n1 ")
    assert "0.5" not in texts
    assert "--strict" not in texts
    assert "--filter" in texts


def test_the_value_of_an_option_is_not_taken_for_the_share() -> None:
    assert "0.5" in offered("%%gpu --project research/vision ")


@pytest.mark.parametrize("line", ["%%gpu", "x = %%gpu ", "%%gpux 0", "%gpus ", "gpu attach ", "%%time "])
def test_other_lines_are_left_alone(line: str) -> None:
    assert offers(line, lambda: POOL) is None


def test_the_pool_is_not_asked_where_its_answer_does_not_matter() -> None:
    def never() -> Choices:
        raise AssertionError("the pool was asked")

    assert offers("%%gpu 0.2 --", never) == Offers("--", FLAGS[1:])
    assert offers("%gpu ", never) is not None


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA RTX 6000 Ada", "NVIDIA*RTX*6000*Ada"),
        ("NVIDIA L40S", "L40S"),
    ],
)
def test_a_device_is_offered_by_the_name_that_people_say(name: str, model: str) -> None:
    assert model_of(name) == model


def test_projects_are_offered_to_their_members_only_and_without_those_that_have_others_below() -> None:
    projects = [
        ProjectSettings("research", members=("ann", "bob")),
        ProjectSettings("research/vision"),
        ProjectSettings("research/secret", members=("bob",)),
        ProjectSettings("sales", members=("carl",)),
        ProjectSettings("default"),
    ]
    assert admitting(projects, "ann") == ["default", "research/vision"]
    assert admitting(projects, "bob") == ["default", "research/secret", "research/vision"]
    assert admitting(reversed(projects), "carl") == ["default", "sales"]


def test_devices_say_names_nodes_labels_and_node_pools() -> None:
    def device(node: str, name: str, pool: str, **labels: str) -> Device:
        return Device(
            f"{node}/0", node, 0, name, "", False, True, "", 1, 1, 1, 1, 0, (), node_pool=pool, labels=labels
        )

    assert of_devices([device("n2", "B", "x", zone="a"), device("n1", "A", "default", zone="b"), device("n1", "A", "x")]) == {
        "names": ["A", "B"],
        "nodes": ["n1", "n2"],
        "labels": {"zone": ["a", "b"]},
        "node_pools": ["default", "x"],
    }  # fmt: skip


@pytest.mark.parametrize("said", [{}, {"projects": 3, "labels": []}, {"names": [1, "A"], "labels": {"x": 1}}])
def test_an_answer_that_is_none_offers_nothing_and_breaks_nothing(said: dict[str, Any]) -> None:
    read = Choices.read(said)
    assert list(read.projects) == []
    assert list(read.names) == [name for name in ("A",) if "names" in said]


class Asked:
    """In the place of the server: counts, and can be down."""

    def __init__(self) -> None:
        self.times = 0
        self.down = False

    def call(self, method: str, path: str, body: object = None, *, seconds: float) -> dict[str, Any]:
        assert (method, path, seconds < 5) == ("GET", "self/choices", True)
        self.times += 1
        if self.down:
            raise GpuError("down", "server-down")
        return {"projects": ["research/vision"], "names": ["NVIDIA H100"], "labels": {"zone": ["a"]}}


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def shell(asked: Asked) -> Iterator[InteractiveShell]:
    InteractiveShell.clear_instance()
    running = InteractiveShell.instance()
    install(running, GpuMatcher(lambda: asked))  # type: ignore[arg-type, return-value]
    yield running
    uninstall(running)
    InteractiveShell.clear_instance()


def completed(shell: InteractiveShell, line: str) -> list[str]:
    """As a program asks; a kernel asks as `in_cell` does."""
    with warnings.catch_warnings(action="ignore", category=PendingDeprecationWarning):
        _, texts = shell.complete(None, line, len(line))
    return list(texts)


def in_cell(shell: InteractiveShell, code: str, cursor: int | None = None) -> list[tuple[str, str]]:
    """The code that each offer would leave before the cursor, and what is offered."""
    from IPython.core.completer import provisionalcompleter

    at = len(code) if cursor is None else cursor
    with provisionalcompleter():
        return [
            (code[: found.start] + found.text, found.text) for found in shell.Completer.completions(code, at)
        ]


def test_ipython_completes_options_and_values(shell: InteractiveShell) -> None:
    assert completed(shell, "%%gpu 0.2 --pri") == ["--priority"]
    assert completed(shell, "%gpu att") == ["attach"]
    assert in_cell(shell, "%%gpu 0.2 --project res") == [
        ("%%gpu 0.2 --project research/vision", "research/vision")
    ]
    assert in_cell(shell, "%%gpu --filter label.zone=") == [("%%gpu --filter label.zone=a", "label.zone=a")]


def test_only_the_line_of_the_magic_is_completed(shell: InteractiveShell) -> None:
    code = "%%gpu 0.2 --stri\nprint(1)"
    assert in_cell(shell, code, code.index("\n")) == [("%%gpu 0.2 --strict", "--strict")]
    assert "--strict" not in [text for _, text in in_cell(shell, "x = 1\n%%gpu --stri")]
    assert in_cell(shell, "%%time\n%%gpu --stri") == [("%%time\n%%gpu --strict", "--strict")]
    assert in_cell(shell, "x = 1\n%gpu st") == [("x = 1\n%gpu status", "status")]
    assert "print" in [text for _, text in in_cell(shell, "%%gpu 0.2\nprin")]


def test_the_pool_is_asked_once_for_a_while_and_a_server_that_is_down_only_shortens_the_list(
    shell: InteractiveShell, asked: Asked
) -> None:
    asked.down = True
    # Where we offer nothing IPython goes on to what it knows itself.
    assert "research/vision" not in [text for _, text in in_cell(shell, "%%gpu --project ")]
    assert in_cell(shell, "%%gpu --kind g") == [("%%gpu --kind guaranteed", "guaranteed")]
    in_cell(shell, "%%gpu --project ")
    assert asked.times == 1


def test_taken_away_it_offers_nothing(shell: InteractiveShell) -> None:
    uninstall(shell)
    assert "attach" not in completed(shell, "%gpu att")
