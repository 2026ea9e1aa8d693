"""The end of the Jupyter server gives everything back, while kernels hold shares."""

from __future__ import annotations

from pathlib import Path

from tests.support.jupyter import jupyter_in_process


async def test_the_end_of_the_server_gives_everything_back(tmp_path: Path) -> None:
    async with jupyter_in_process(tmp_path) as jupyter:
        kernel = await jupyter.start_kernel()
        await jupyter.json("POST", f"gpupool/api/kernels/{kernel.kernel_id}/attach", {"share": "0.2"})
        pool = jupyter.pool
        assert pool.free_milli == 800
    assert pool.free_milli == 1000
    assert list(pool.session_states.values()) == ["closed"]
