"""What one may ask for is said once: an option is named in the table, in the message, and where something acts on it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = "server/gpupool/request/gpu_request.py"
MESSAGE = "server/gpupool/proto/gpupool/v1/pool.proto"
#: Whoever passes requests on, and knows no option.
PASSED_ON = ("server/gpupool/client", "server/gpupool/cli", "jupyter_gpupool", "labextension/src")


def named_in(pattern: str, *where: str) -> set[str]:
    """Tracked sources, tests aside, in which an extended regular expression is found."""
    paths = [f":(glob){folder}/**/*.{ending}" for folder in where for ending in ("py", "ts", "tsx", "proto")]
    command = ["git", "grep", "-lE", "-e", pattern, "--", *paths, ":!*__tests__*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return set(done.stdout.split())


def test_an_option_is_named_in_the_table_the_message_and_where_something_acts_on_it() -> None:
    assert named_in(r"\bno_isolation\b", "server", "jupyter_gpupool", "labextension") == {
        TABLE,
        MESSAGE,
        "server/gpupool/pool/access/validate.py",  # the pool's event says it from here on
        "server/gpupool/pool/api/explanations.py",  # what would be granted instead
    }


def test_whoever_passes_a_request_on_knows_no_option() -> None:
    # An example in the help of another command.
    assert named_in("no_isolation|no-isolation|noIsolation", *PASSED_ON) == {
        "server/gpupool/cli/node/start.py"
    }


@pytest.mark.parametrize("flag", ["--nodes", "--exclusive", "--kind", "--filter", "--no-isolation"])
def test_no_parser_spells_an_option_by_itself(flag: str) -> None:
    assert named_in(f'"{flag}"', "server", "jupyter_gpupool") == {TABLE}


def test_what_is_made_is_not_kept() -> None:
    assert named_in("REQUEST_OPTIONS =", "labextension") == set()


def test_the_search_finds_what_is_there() -> None:
    assert named_in(r"^class GpuRequest\b", "server") == {TABLE}
    assert MESSAGE in named_in("RequestLease", "server")
