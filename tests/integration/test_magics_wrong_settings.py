"""A server with wrong settings: `%%gpu` and `%gpu` are there, and say which setting it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.jupyter import jupyter_in_process

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_token_file_that_is_missing_is_named(stand_in: Path, tmp_path: Path) -> None:
    missing = tmp_path / "nofile"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GPUPOOL_NATIVE_DIR", str(stand_in))
        async with jupyter_in_process(tmp_path, endpoint="127.0.0.1:1", token_file=str(missing)) as jupyter:
            kernel = await jupyter.start_kernel()
            for cell in ("%%gpu 0.2\nprint('r' + 'an')", "%gpu attach 0.2"):
                reply = await kernel.run(cell)
                assert reply.ename == "GpuError"
                assert str(missing) in reply.evalue
                assert "c.GpuPoolExtension.token_file" in reply.evalue
                assert "ran" not in reply.text.split()
            # The setting was right all the time, and now the file is there: the kernel need not be restarted.
            missing.write_text("0" * 64)
            missing.chmod(0o600)
            later = await kernel.run("%%gpu 0.2 --wait 0\n1")
            assert "token_file" not in later.evalue
            assert "127.0.0.1:1" in later.evalue


async def test_a_folder_for_session_files_that_cannot_be_used_is_named(
    stand_in: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GPUPOOL_NATIVE_DIR", str(stand_in))
        # A pool that the kernel could ask itself: it was told not to.
        environment.setenv("GPUPOOL_ENDPOINT", "unix:/nowhere")
        async with jupyter_in_process(tmp_path, session_dir=str(tmp_path / "file" / "sessions")) as jupyter:
            kernel = await jupyter.start_kernel()
            assert (await kernel.run("1 + 1")).status == "ok"
            for cell in (
                "%%gpu 0.2\nprint('r' + 'an')",
                "%gpu attach 0.2",
                "import gpupool\nwith gpupool.attach(): 1",
            ):
                reply = await kernel.run(cell)
                assert reply.status == "error"
                assert "c.GpuPoolExtension.session_dir" in reply.evalue
                assert "ran" not in reply.text.split()
            assert "%gpu reset" in (await kernel.run("%gpu help")).text


async def test_what_a_server_said_is_not_said_to_a_child(stand_in: Path, tmp_path: Path) -> None:
    """papermill in a cell starts a kernel that inherits the environment."""
    (tmp_path / "file").touch()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("GPUPOOL_NATIVE_DIR", str(stand_in))
        async with jupyter_in_process(tmp_path, session_dir=str(tmp_path / "file" / "sessions")) as jupyter:
            kernel = await jupyter.start_kernel()
            code = "from jupyter_gpupool.kernel import broker; broker.settle_environment(); print('said', broker.problem())"
            reply = await kernel.run(
                "import subprocess, sys\n"
                f"print(subprocess.run([sys.executable, '-c', {code!r}], capture_output=True, text=True).stdout)"
            )
            assert "said" in reply.text
            assert "session_dir" not in reply.text
