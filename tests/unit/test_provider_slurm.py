"""What `squeue` says, as the provider reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpupool.providers.contract import JobOrder, JobReport
from gpupool.providers.kinds import KINDS, Opening, Place, SettingsError
from gpupool.providers.settings import read
from gpupool.providers.slurm import SlurmProvider, report
from hypothesis import given
from hypothesis import strategies as st

NOW = 1_800_000_000.0
SOON = str(int(NOW) + 700)


@pytest.mark.parametrize(
    ("columns", "read"),
    [
        (("PENDING", "10:00", SOON, "Resources"), JobReport("pending", "Resources", starts_in=700.0)),
        (("PENDING", "10:00", "N/A", "Priority"), JobReport("pending", "Priority")),
        (("PENDING", "10:00", "", "None"), JobReport("pending")),
        (("PENDING", "10:00", "N/A", "BadConstraints"), JobReport("pending", "BadConstraints", never=True)),
        (
            ("PENDING", "10:00", "N/A", "QOSMaxWallDurationPerJobLimit"),
            JobReport("pending", "QOSMaxWallDurationPerJobLimit", never=True),
        ),
        (
            ("PENDING", "10:00", "N/A", "QOSMaxJobsPerUserLimit"),
            JobReport("pending", "QOSMaxJobsPerUserLimit"),
        ),
        (("PENDING", "10:00", "2027-01-15T09:00:00", "Resources"), JobReport("pending", "Resources")),
        (
            ("PENDING", "10:00", str(int(NOW) - 5), "Resources"),
            JobReport("pending", "Resources", starts_in=0.0),
        ),
        (
            ("PENDING", "UNLIMITED", str(int(NOW) + 365 * 86_400), "Resources"),
            JobReport("pending", "Resources"),
        ),
        (("RUNNING", "1-02:03:04", SOON, "None"), JobReport("running", seconds_left=93_784.0)),
        (("RUNNING", "UNLIMITED", SOON, "None"), JobReport("running")),
        (("TIMEOUT", "0:00", SOON, "TimeLimit"), JobReport("ended", "TIMEOUT (TimeLimit)")),
        (("COMPLETED", "0:00", SOON, "None"), JobReport("ended", "COMPLETED")),
        # A state of a newer Slurm: its devices are not free.
        (("EXPEDITING", "10:00", SOON, "None"), JobReport("running", seconds_left=600.0)),
    ],
)
def test_columns(columns: tuple[str, str, str, str], read: JobReport) -> None:
    assert report(*columns, NOW) == read


#: Words that begin with letters of others.
_HARMLESS = ("-Aproject", "-p", "ajax", "--comment=-J", "--no-requeue", "--job-name-of-another", "-c4", "-t1")


@pytest.mark.parametrize("gres", ["shard", "shard:h100", "mps"])
def test_parts_of_a_gpu_are_not_borrowed(gres: str) -> None:
    place = Place(Path("/nowhere"), "unix:/nowhere/pool.sock", "pool")
    with pytest.raises(SettingsError, match=f"'{gres}' is a part of a GPU"):
        KINDS["slurm"].open(Opening("lab", place, ["gpupool"], None, {"gres": gres}))
    for whole in ("gpu", "gpu:shard"):
        KINDS["slurm"].open(Opening("lab", place, ["gpupool"], None, {"gres": whole}))


@pytest.mark.parametrize(
    "option",
    [
        "-J", "-Jx", "--job-name=x", "--job-n=x", "-a1-3", "--array=1-3", "--arr=1-3", "--requeue", "--req",
        "-W", "-HW", "-kJx", "--wait", "--wai", "--qui", "--test", ":", "-Mbig", "-vMbig", "--clusters=big", "--clu=big",
    ],
)  # fmt: skip
def test_options_after_which_a_job_is_not_found_again_are_refused(option: str) -> None:
    place = Place(Path("/nowhere"), "unix:/nowhere/pool.sock", "pool")
    with pytest.raises(SettingsError, match=f"options has '{option}'"):
        KINDS["slurm"].open(Opening("lab", place, ["gpupool"], None, {"options": [option]}))
    KINDS["slurm"].open(
        Opening("lab", place, ["gpupool"], None, {"options": [*_HARMLESS, "--wait-all-nodes=1"]})
    )


def test_a_time_limit_is_no_shorter_for_slurm_than_it_was_checked(tmp_path: Path) -> None:
    table = 'time_limit = "510s"\ndrain_before = "5m"\nreplace_before = "3m"\n'
    assert "--time=9" in _opened(tmp_path, table).arguments(ORDER)


def _opened(
    folder: Path, table: str = "", place: Place | None = None, token: Path | None = None
) -> SlurmProvider:
    file = folder / "providers.toml"
    file.write_text(f'[lab]\nkind = "slurm"\n{table}')
    (one,) = read(file)
    provider = one.open(
        place or Place(folder, "unix:/pool.sock", "pool", "tls:login1:7460", Path("/h/ca.pem"), 120.0), token
    )
    assert isinstance(provider, SlurmProvider)
    return provider


ORDER = JobOrder("j1", "lab-j1", 1)


def test_without_more_words_agents_dial_the_pool_s_port_and_trust_its_certificate(tmp_path: Path) -> None:
    provider = _opened(tmp_path, token=Path("/h/node.token"))
    script = provider.script(ORDER)
    assert f"{sys.executable} -m gpupool.cli.main node start " in script
    assert " --pool tls:login1:7460 --leave-after 120s --token-file /h/node.token " in script
    assert "export GPUPOOL_CA_FILE=/h/ca.pem\n" in script
    assert f"--output={tmp_path}/providers/lab/j1.log" in provider.arguments(ORDER)


def test_what_the_table_says_comes_first(tmp_path: Path) -> None:
    table = (
        'pool = "h:1"\ntoken_file = "/t"\nca_file = "/ca"\noutput = "/o-%j"\ncommand = ["g"]\n'
        'node_options = ["--leave-after", "1h"]\n'
    )
    provider = _opened(tmp_path, table, token=Path("/other"))
    script = provider.script(ORDER)
    assert (
        "g node start --node-pool default --pool h:1 --leave-after 120s --leave-after 1h --token-file /t "
        in script
    )
    assert "GPUPOOL_CA_FILE=/ca\n" in script and "--output=/o-%j" in provider.arguments(ORDER)


def test_a_percent_sign_in_the_home_is_no_pattern_of_slurm(tmp_path: Path) -> None:
    place = Place(Path("/a%j"), "unix:/pool.sock", "pool", "h:1")
    assert "--output=/a%%j/providers/lab/j1.log" in _opened(tmp_path, place=place).arguments(ORDER)


def test_a_pool_that_other_machines_cannot_reach_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--listen HOST:PORT"):
        _opened(tmp_path, place=Place(tmp_path, "unix:/pool.sock", "pool"))


def test_tokens_are_made_for_agents_that_dial_a_port_and_have_none(tmp_path: Path) -> None:
    file = tmp_path / "providers.toml"
    file.write_text(
        '[a]\nkind = "slurm"\n[b]\nkind = "slurm"\ntoken_file = "/t"\n[c]\nkind = "slurm"\npool = "unix:/p"\n'
        '[d]\nkind = "local"\n[e]\nkind = "slurm"\npool = "h:1"\n'
        '[f]\nkind = "kubernetes"\npool = "h:1"\nimage = "i"\n'
        '[g]\nkind = "kubernetes"\npool = "h:1"\nimage = "i"\nexisting_secret = "mine"\n'
    )
    place = Place(tmp_path, "unix:/pool.sock", "pool", "tls:login1:7460")
    assert [one.name for one in read(file) if one.needs_token(place)] == ["a", "e", "f"]


async def test_a_job_gets_neither_the_secrets_of_a_server_nor_the_limits_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {
        "JUPYTERHUB_API_TOKEN": "secret", "JPY_API_TOKEN": "secret", "GPUPOOL_HUB_IDENTITY": "1",
        "GPUPOOL_TOKEN_FILE": "/t", "SLURM_MEM_PER_NODE": "1", "CUDA_VISIBLE_DEVICES": "3",
        "PGPASSWORD": "secret", "PGPASSFILE": "/p", "GPUPOOL_LEDGER": "postgresql://",
        # Somebody's own: jobs would be hidden from squeue, and scancel would ask back.
        "SQUEUE_PARTITION": "cpu", "SCANCEL_INTERACTIVE": "1", "SBATCH_ARRAY_INX": "1-3", "SBATCH_WAIT": "1",
    }  # fmt: skip
    kept = {"SLURM_CONF": "/slurm.conf", "SLURM_JWT": "jwt", "GPUPOOL_CA_FILE": "/ca", "SBATCH_QOS": "q"}
    for name, value in (told | kept).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "sbatch").write_text(f"#!/bin/sh\nenv > {tmp_path}/env\necho 7\n")
    (tmp_path / "sbatch").chmod(0o755)
    provider = _opened(tmp_path, f'programs = "{tmp_path}"\n')
    assert await provider.submit(ORDER) == {"job": "7"}
    found = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    assert found.keys().isdisjoint(told) and kept.items() <= found.items()


async def test_what_an_agent_said_last_is_why_its_job_ended(tmp_path: Path) -> None:
    (tmp_path / "squeue").write_text(
        "#!/bin/sh\ncase \"$*\" in *--all*) echo '7|gpupool-pool-j1|FAILED|0:00|0|NonZeroExitCode';; esac\n"
    )
    (tmp_path / "squeue").chmod(0o755)
    provider = _opened(tmp_path, f'programs = "{tmp_path}"\n')
    log = tmp_path / "providers" / "lab" / "j1.log"
    log.parent.mkdir(parents=True)
    log.write_text("starting\nError: no GPU\n\n")
    assert (await provider.poll({"j1": {"job": "7"}}))[
        "j1"
    ].reason == "FAILED (NonZeroExitCode): Error: no GPU"


@given(state=st.text(), left=st.text(), start=st.text() | st.text("0123456789"), reason=st.text())
def test_whatever_stands_there_is_a_report(state: str, left: str, start: str, reason: str) -> None:
    found = report(state, left, start, reason, NOW)
    assert found.phase in ("pending", "running", "ended")
    assert found.starts_in is None or found.starts_in >= 0.0


def _ran(tmp_path: Path, **variables: str) -> tuple[int, str]:
    """Exit code of a job's script, and the home that its agent was given; empty: none was started."""
    agent, told = tmp_path / "agent", tmp_path / "told"
    agent.write_text(f'#!/bin/sh\n[ -d "$GPUPOOL_HOME" ] && echo "$GPUPOOL_HOME" > {told}\n')
    agent.chmod(0o700)
    script = _opened(tmp_path, f'command = ["{agent}"]\n', token=Path("/h/node.token")).script(ORDER)
    done = subprocess.run(["bash"], input=script, text=True, env={**os.environ, **variables}, check=False)
    return done.returncode, told.read_text().strip() if told.exists() else ""


def test_an_agent_has_a_home_of_its_own_where_the_pools_temporary_folder_is_not(tmp_path: Path) -> None:
    code, home = _ran(tmp_path, TMPDIR="/nonexistent")
    assert (code, home[:13]) == (0, "/tmp/gpupool-")
    assert not Path(home).exists()


def test_without_one_no_agent_starts(tmp_path: Path) -> None:
    (tmp_path / "mktemp").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "mktemp").chmod(0o700)
    code, home = _ran(tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert code != 0 and home == ""
