"""What is offered when Tab is pressed: other people's words are in it, and shells evaluate what they are offered."""

from __future__ import annotations

import pytest
from gpupool.cli.common import completing


class _Context:
    params: dict[str, object] = {}  # noqa: RUF012


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch):
    """What a shell gets of what a pool answers."""

    class Pool:
        def __init__(self, *_: object) -> None: ...
        async def __aenter__(self) -> Pool:
            return self

        async def __aexit__(self, *_: object) -> None: ...

    monkeypatch.setattr(completing, "PoolClient", Pool)

    def find(answer: list[tuple[str, str]], incomplete: str = "") -> list[tuple[str, str]]:
        async def work(_: object) -> list[tuple[str, str]]:
            return answer

        return completing._offers(_Context(), incomplete, work)  # type: ignore[arg-type]

    return find


@pytest.mark.parametrize(
    "label", ["x\\$(touch /tmp/pwn)", "`id`", "a;b", "--out=[/data]", "\x1b[2J", "a'b\"c"]
)
def test_no_label_reaches_a_shell_with_anything_that_one_evaluates(offered, label: str) -> None:
    ((name, said),) = offered([("3f2a", f"ann: {label}")])
    assert name == "3f2a" and said.startswith("ann: ")
    assert not set(said) & set("\\$`;[]()'\"\x1b{}|&<>*?!~#") - {"?"}


def test_words_of_every_language_stay(offered) -> None:
    assert offered([("3f2a", "ann: Größe 3, 模型.ipynb (alt)")]) == [
        ("3f2a", "ann: Größe 3, 模型.ipynb ?alt?")
    ]


@pytest.mark.parametrize("value", ["name=$(id)", "label.a=`id`", "name=a;b", "a\\b"])
def test_a_value_that_a_shell_would_evaluate_is_not_offered(offered, value: str) -> None:
    assert offered([(value, ""), ("name=NVIDIA L4", "")]) == [("name=NVIDIA L4", "")]
