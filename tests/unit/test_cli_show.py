"""Tables of other people's words: no markup, no escape sequences, on the way in and on the way out."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from gpupool.cli.common import exits, show
from gpupool.client.types import SessionInfo, Usage
from gpupool.pool.access import validate
from gpupool.proto import pool_pb2 as pb
from gpupool.text import printable
from rich.console import Console

ESCAPES = "\x1b]0;mine\x07\x9b31m\u202egnp\u2028\x00"


@pytest.mark.parametrize("label", ["[/tmp/x]", "notes[draft].ipynb", "[red]alarm[/red]", ":smile:", "日本語"])
def test_cells_are_shown_as_they_were_written(capsys: pytest.CaptureFixture[str], label: str) -> None:
    lines = show.table("SESSION", "WHAT")
    lines.add("s1", label)
    show.console().print(lines)
    assert label in capsys.readouterr().out


def test_what_would_steer_a_terminal_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show.table("WHAT")
    lines.add(f"a{ESCAPES}z")
    show.console().print(lines)
    exits.say(f"a{ESCAPES}z")
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert r"a\x1b]0;mine\x07\x9b31m\u202egnp\u2028\x00z" in text
        assert not set(text) & set("\x1b\x07\x9b\u202e\u2028\x00")


def usage(**more: object) -> Usage:
    return Usage(**more)  # type: ignore[arg-type]


def a_session(state: str, **more: object) -> SessionInfo:
    return SessionInfo("s1", "ann", "", "", "n1", state, "", ("n1/0", "n1/1"), "", usage(**more))


@pytest.mark.parametrize(
    ("state", "said", "shown"),
    [
        ("attached", {}, "attached"),
        ("attached", {"work": "running", "kernel": "k", "work_seconds": 1.9}, "attached"),
        (
            "attached",
            {"work": "running", "kernel": "forever", "work_seconds": 14.2},
            "attached, forever 14 s",
        ),
        ("attached", {"work": "running", "work_seconds": 14.2}, "attached, work 14 s"),
        (
            "parked",
            {"work": "draining", "kernel": "forever", "work_seconds": 12.0},
            "draining: forever since 12 s",
        ),
        ("parked", {"work": "stopped", "kernel": "forever", "work_seconds": 12.0}, "stopped: forever"),
        ("attached", {"failure": 700}, "failed: illegal address (CUDA error 700)"),
        ("parked", {"failure": 999}, "failed: CUDA error 999"),
        ("closed", {"failure": 700}, "closed"),
    ],
)
def test_what_a_session_does_is_said(state: str, said: dict[str, object], shown: str) -> None:
    assert show.session_state(a_session(state, **said)) == shown


@pytest.mark.parametrize("state", ["closed", "lost"])
def test_a_session_that_has_ended_says_why(state: str) -> None:
    ended = replace(a_session(state, failure=700), reason="idle")
    assert show.session_state(ended) == f"{state} (idle)"


def test_how_busy_a_session_is_counts_all_its_devices() -> None:
    assert show.session_busy(a_session("attached", busy=1.0)) == "50 %"
    assert show.session_busy(a_session("attached", busy=2.3)) == "100 %"


def test_a_narrow_terminal_loses_the_least_wanted_columns_and_shortens_nothing() -> None:
    lines = show.table("ID", "USER", "WHAT", "WHY", less_wanted=("WHAT", "USER"))
    lines.add("0123456789ab", "ann", "notebook", "because there is no room for it anywhere")
    for width, there, gone in (
        (120, ("ann", "notebook"), ()),
        (40, ("ann",), ("notebook",)),
        (30, (), ("ann",)),
    ):
        console = Console(width=width)
        with console.capture() as captured:
            console.print(lines)
        shown = captured.get()
        assert "0123456789ab" in shown
        assert max(map(len, shown.splitlines())) <= width
        assert all(text in shown for text in there)
        assert not any(text in shown for text in gone)


def test_colours_are_the_programs_own(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show.table("CHECK", "STATUS")
    lines.add("pool", show.coloured("ok", "green"))
    console = show.console()
    console.print(lines)
    assert "ok" in capsys.readouterr().out
    assert show.coloured("[ok]\x1b", "green").plain == r"[ok]\x1b"


@pytest.mark.parametrize("text", ["", "plain", "zwölf µs", "👩\u200d🔬", "می\u200cخواهم", r"back\slash"])
def test_other_text_is_left_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_the_pool_keeps_no_text_that_steers_terminals() -> None:
    message = pb.RequestLease(milli=200, idempotency_key="k", label=f"a{ESCAPES}", holder="h\n\x1b[2J")
    event = validate.request(message, "ann", 0.0)
    assert printable(event.label) == event.label
    assert event.holder == r"h\n\x1b[2J"
    message.idempotency_key = "k\x9b"
    with pytest.raises(validate.BadInputError, match="idempotency_key"):
        validate.request(message, "ann", 0.0)


@pytest.mark.parametrize("user", ["", "a b", "a\x9b", "a\u202e", "a\n", "x" * 129])
def test_names_of_users_hold_nothing_of_the_kind(user: str) -> None:
    assert not validate.is_user(user)
    assert validate.is_user("zoë@example.org")


def test_a_long_word_goes_on_below_instead_of_losing_its_end() -> None:
    lines = show.table("SESSION", "WHAT", wrapped=("WHAT",))
    lines.add("7f6d4a6e361a", "a-notebook-with-a-long-name-2026-11-25.ipynb")
    console = Console(width=40, record=True, file=io.StringIO())
    console.print(lines)
    text = console.export_text()
    assert "…" not in text
    assert "7f6d4a6e361a" in text
    assert "25.ipynb" in "".join(text.split())
