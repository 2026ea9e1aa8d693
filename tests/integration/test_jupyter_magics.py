"""`%%gpu` and `%gpu` in real kernels: what runs, what is shown, and that the share goes back.

The pool is in memory and the client runtime a stand-in that counts drains; the same cells
over the real pool, node, worker and runtime are in test_main_job.py and test_bad_input.py.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from jupyter_gpupool.server.session.words import KERNEL_WORDS
from tests.support.jupyter import Cells, JupyterInProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_cell_has_the_share_while_it_runs_and_says_what_it_used(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    reply = await kernel.run(
        "%%gpu 0.2\nx = 20\nstate = get_ipython().run_line_magic('gpu', 'status')\nx + 1"
    )
    assert reply.status == "ok"
    assert "state: attached" in reply.text
    assert "21" in reply.text
    [line] = [output["data"] for output in reply.outputs if "text/html" in output["data"]]
    for part in (
        "0.2 GPU (1587 MiB), GPU 0 on node1",
        "device time 1.00 s",
        "calls 100",
        "waits for the GPU 7 (1.00 s)",
        "to device 2 KiB",
        "from device 0 B",
        "peak memory 3 MiB",
    ):
        assert part in line["text/plain"]
    assert ">100</td>" in line["text/html"]
    assert line["application/vnd.gpupool.cell+json"]["figures"]["calls"] == 100
    view = await jupyter.kernel(kernel.kernel_id)
    assert (view["state"], view["reason"], view["held"]) == ("parked", "exit", False)
    assert (await kernel.run("x")).text.strip() == "20"


async def test_the_next_cell_resumes_the_same_session(jupyter: JupyterInProcess, kernel: Cells) -> None:
    await kernel.run("%%gpu 0.2\n1")
    first = (await jupyter.kernel(kernel.kernel_id))["session_id"]
    await kernel.run("%%gpu 0.4\n1")
    assert (await jupyter.kernel(kernel.kernel_id))["session_id"] == first
    assert [argument for call, argument in jupyter.pool.calls if call == "request"] == ["", first]


async def test_a_hard_cap_is_asked_for_when_the_session_begins(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    assert (await kernel.run("%%gpu 0.2 --strict\n1")).status == "ok"
    assert (await kernel.run("%gpu attach 0.2 --strict")).status == "ok"
    assert (await kernel.run("%gpu detach")).status == "ok"
    assert (await kernel.run("%%gpu 0.2\n1")).status == "ok"
    assert [request.strict for request in jupyter.pool.requests] == [True, True, False]


async def test_a_hold_is_asked_for_with_the_words_as_they_were_written(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    line = r"""0.2 --filter 'name=a\b*' --filter "label.zone=it's" """
    assert (await kernel.run(f"%gpu attach {line}")).status == "ok"
    assert (await kernel.run("%gpu detach")).status == "ok"
    assert (await kernel.run(f"%%gpu {line}\n1")).status == "ok"
    assert [request.filters for request in jupyter.pool.requests] == [(r"name=a\b*", "label.zone=it's")] * 2
    jupyter.pool.memory_now = {"memory_place": "device", "enforcement": "hard", "strict": True}
    assert (await kernel.run("%gpu attach 0.2")).status == "ok"
    async with asyncio.timeout(20):  # the server asks the pool every now and then
        while (
            "compute share: enforced hard, a hard cap (--strict)"
            not in (await kernel.run("%gpu status")).text
        ):
            await asyncio.sleep(0.1)


async def test_a_session_that_began_without_a_hard_cap_says_what_to_do(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    assert (await kernel.run("%%gpu 0.2\n1")).status == "ok"
    refused = await kernel.run("%%gpu 0.2 --strict\nprint('never')")
    assert refused.status == "error"
    assert "began without --strict" in refused.text
    assert "restart the kernel" in refused.text
    assert "never" not in refused.text.replace("print('never')", "")


async def test_top_level_await_works(kernel: Cells) -> None:
    reply = await kernel.run(
        "%%gpu 0.2\nimport asyncio\nawait asyncio.sleep(0.01)\nprint('after the ' + 'await')"
    )
    assert reply.status == "ok"
    assert "after the await" in reply.text
    assert "device time" in reply.text


@pytest.mark.parametrize("cell", ["%%gpu 0.2\n%%time\ny = 5", "%%time\n%%gpu 0.2\ny = 5"])
async def test_time_above_or_below(kernel: Cells, cell: str) -> None:
    reply = await kernel.run(cell)
    assert reply.status == "ok"
    assert "Wall time" in reply.text
    assert "device time" in reply.text
    assert (await kernel.run("y")).text.strip() == "5"


async def test_a_cell_run_by_a_cell_does_not_end_its_scope(jupyter: JupyterInProcess, kernel: Cells) -> None:
    reply = await kernel.run(
        "%%gpu 0.2\nip = get_ipython()\nip.run_cell('1')\nip.run_cell('   ')\nip.run_line_magic('gpu', 'status')"
    )
    assert "state: attached" in reply.text
    # What the cell took is shown once, at its end; `status` may speak of device time, too.
    assert ["text/html" in output["data"] for output in reply.outputs].count(True) == 1
    assert "text/html" in reply.outputs[-1]["data"]


async def test_the_default_share_serves_a_bare_line(jupyter: JupyterInProcess, kernel: Cells) -> None:
    assert "0.2 GPU" in (await kernel.run("%%gpu\n1")).text


async def test_help_and_completion(kernel: Cells) -> None:
    reply = await kernel.run("%%gpu?")
    assert reply.status == "ok"
    completion = await kernel.run(
        "print(get_ipython().complete(None, '%gpu ', 5)[1], '%%gpu' in get_ipython().complete('%%gp')[1])"
    )
    assert "attach" in completion.text
    assert "True" in completion.text


async def test_hold_keeps_the_share_until_detach(jupyter: JupyterInProcess, kernel: Cells) -> None:
    reply = await kernel.run("%%gpu 0.2 --hold\n1")
    assert "still attached" in reply.text
    view = await jupyter.kernel(kernel.kernel_id)
    assert (view["state"], view["by"]) == ("attached", "attach")
    assert "Detached" in (await kernel.run("%gpu detach")).text
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "parked"


async def test_a_cell_under_the_sidebars_hold_leaves_it_attached(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    await jupyter.json("POST", f"{path}/attach", {"share": "0.3"})
    reply = await kernel.run("%%gpu 0.2\n1")
    assert reply.status == "ok"
    view = await jupyter.kernel(kernel.kernel_id)
    assert (view["state"], view["by"], view["share"]["milli"]) == ("attached", "sidebar", 300)
    reply = await kernel.run("%%gpu 0.5\n%gpu status")
    assert "0.5 GPU" in reply.text
    assert (await jupyter.kernel(kernel.kernel_id))["share"]["milli"] == 300
    await jupyter.json("POST", f"{path}/detach", {})


async def test_detach_in_the_sidebar_spares_a_running_cell(jupyter: JupyterInProcess, kernel: Cells) -> None:
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    await jupyter.json("POST", f"{path}/attach", {"share": "0.2"})
    running = kernel.start("%%gpu 0.2\nimport time\ntime.sleep(1.5)")
    await asyncio.sleep(0.5)
    _, view = await jupyter.json("POST", f"{path}/detach", {})
    assert view["state"] == "attached"
    assert view["message"] == "Running code still uses the GPU; it goes back when that code ends."
    assert (await kernel.finish(running)).status == "ok"
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "parked"


async def test_detach_asks_before_it_takes_the_gpu_from_a_cell_that_may_use_what_is_held(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    path = f"gpupool/api/kernels/{kernel.kernel_id}"
    await jupyter.json("POST", f"{path}/attach", {"share": "0.2"})
    running = kernel.start("import time\ntime.sleep(2)")
    async with asyncio.timeout(10):
        while not (await jupyter.kernel(kernel.kernel_id))["busy"]:
            await asyncio.sleep(0.05)
    status, refused = await jupyter.json("POST", f"{path}/detach", {})
    assert (status, refused["reason"]) == (409, "running")
    assert (await jupyter.kernel(kernel.kernel_id))["state"] == "attached"
    _, view = await jupyter.json("POST", f"{path}/detach", {"force": True})
    assert view["state"] == "parked"
    assert (await kernel.finish(running)).status == "ok"


async def test_a_cell_says_that_a_new_session_has_none_of_the_arrays(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    assert (await kernel.run("%%gpu 0.2\n1")).status == "ok"
    [session_id] = jupyter.pool.session_states
    jupyter.pool.session_states[session_id] = "closed"
    reply = await kernel.run("%%gpu 0.2 --hold\nprint('r' + 'an')")
    assert (reply.status, "ran" in reply.text) == ("ok", True)
    assert KERNEL_WORDS.state_lost in reply.text
    assert KERNEL_WORDS.state_lost not in (await kernel.run("%%gpu 0.2\n1")).text, "once is enough"
    await kernel.run("%gpu detach")


async def test_a_cell_says_which_of_its_terms_a_held_share_does_not_follow(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    assert (await kernel.run("%gpu attach 0.4")).status == "ok"
    reply = await kernel.run("%%gpu 0.2 --project research --for 2h\n1")
    assert reply.status == "ok"
    assert "--for 7200 --project research counts for a new share only" in reply.text
    assert "counts for a new share" not in (await kernel.run("%%gpu 0.2 --wait 5m\n1")).text
    assert "%gpu resize 0.3 makes it smaller" in (await kernel.run("%gpu attach 0.3")).text
    assert "%gpu resize" not in (await kernel.run("%gpu attach 0.4")).text
    assert "%gpu resize" not in (await kernel.run("%%gpu 0.3\n1")).text, "a cell may do with a part"
    await kernel.run("%gpu detach")


async def test_a_share_that_the_kernel_cannot_use_is_not_held(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    await kernel.run(
        "from jupyter_gpupool.kernel import device\n"
        "kept = device.attach\n"
        "def device_attach(**_): raise RuntimeError('no runtime')\n"
        "device.attach = device_attach"
    )
    reply = await kernel.run("%%gpu 0.2 --hold\nprint('r' + 'an')")
    assert (reply.status, "ran" in reply.text) == ("error", False)
    view = await jupyter.kernel(kernel.kernel_id)
    assert (view["state"], view["held"]) == ("parked", False)
    await kernel.run("device.attach = kept")


async def test_a_lease_that_ends_under_a_cell_is_said_in_the_cell(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    running = kernel.start("%%gpu 0.2\nimport time\ntime.sleep(2)")
    await jupyter.until(kernel.kernel_id, "attached")
    [lease_id] = jupyter.pool.held
    jupyter.pool.end(lease_id, "deadline")
    await (await jupyter.extension.sessions())._holder.renew_now()
    view = await jupyter.until(kernel.kernel_id, "parked")
    assert view["reason"] == "deadline"
    reply = await kernel.finish(running)
    assert reply.status == "ok"
    assert "The time that was asked for" in reply.text


async def test_the_line_magic(jupyter: JupyterInProcess, kernel: Cells) -> None:
    assert "0.2 GPU (1587 MiB)" in (await kernel.run("%gpu attach 0.2")).text
    assert "0.4 GPU" in (await kernel.run("%gpu resize 0.4")).text
    assert "state: attached" in (await kernel.run("%gpu")).text
    assert "No idle release for 10 min." in (await kernel.run("%gpu keep")).text
    assert "No idle release for 1 h 30 min." in (await kernel.run("%gpu keep 90")).text
    listed = await kernel.run("%gpu list")
    assert "GPU 0 on node1" in listed.text
    assert "0.4 GPU, 3174 MiB: you" in listed.text
    assert "Detached" in (await kernel.run("%gpu detach")).text
    for wrong, named in [
        ("%gpu detach", "No GPU is attached"),
        ("%gpu resize 0.4", "No GPU is attached"),
        ("%gpu resize", "needs the new share"),
        ("%gpu resize banana", "banana"),
        ("%gpu banana", "banana"),
        ("%gpu 0.2", "%%gpu 0.2"),
        ("%gpu keep long", "long"),
        ("%gpu status now", "now"),
        ("%gpu attach 1.7", "1.7"),
    ]:
        reply = await kernel.run(wrong)
        assert reply.status == "error", wrong
        assert named in reply.evalue, (wrong, reply.evalue)


async def test_other_peoples_names_are_escaped(jupyter: JupyterInProcess, kernel: Cells) -> None:
    await kernel.run("%gpu attach 0.2")
    [entry] = jupyter.pool.held.values()
    object.__setattr__(entry.request, "on_behalf_of", "<img src=x onerror=alert(1)>")
    reply = await kernel.run("%gpu list")
    [bundle] = [output["data"] for output in reply.outputs]
    assert "<img" not in bundle["text/html"]
    assert "&lt;img" in bundle["text/html"]
    await kernel.run("%gpu detach")


async def test_outside_of_a_cell_and_without_a_server(kernel: Cells) -> None:
    reply = await kernel.run(
        "import os, threading\n"
        "def outside():\n"
        "    try: get_ipython().gpupool.enter('0.2')\n"
        "    except Exception as error: print(error)\n"
        "t = threading.Thread(target=outside); t.start(); t.join()"
    )
    assert "first line of a cell" in reply.text
    reply = await kernel.run("del os.environ['GPUPOOL_CAPABILITY_FILE']\n")
    reply = await kernel.run("%%gpu 0.2\n1")
    assert "not started by a Jupyter server" in reply.evalue
    assert "GPUPOOL_ENDPOINT" in reply.evalue


async def test_the_widget_needs_no_kernel_for_its_numbers(kernel: Cells) -> None:
    reply = await kernel.run("from jupyter_gpupool import GpuUsage\nGpuUsage()")
    assert reply.status == "ok", reply.text
    data = reply.outputs[-1]["data"]
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "state: no GPU" in data["text/plain"]
    assert "state: no GPU" in data["text/html"]
    saved = data["application/vnd.gpupool.usage+json"]
    assert "state: no GPU" in saved["summary"]
    assert saved["taken_at"] == pytest.approx(time.time(), abs=60)
    assert (await kernel.run("%gpu widget")).status == "ok"


async def test_the_widget_takes_its_text_anew_when_a_page_asks(kernel: Cells) -> None:
    reply = await kernel.run(
        "from jupyter_gpupool import GpuUsage\nw = GpuUsage()\nat, text = w.taken_at, w.summary\n"
        "w._handle_custom_msg({'type': 'something else'}, [])\nprint(w.taken_at == at)"
    )
    assert "True" in reply.text
    await kernel.run("%gpu attach 0.2")
    reply = await kernel.run(
        "w._handle_custom_msg({'type': 'refresh'}, [])\nprint(w.taken_at > at, text != w.summary, w.summary)"
    )
    assert "True True state: attached" in reply.text


async def test_the_tab_key_offers_what_the_pool_has_over_the_protocol(
    jupyter: JupyterInProcess, kernel: Cells
) -> None:
    async def complete(code: str, cursor: int | None = None) -> tuple[str, list[str]]:
        asked = kernel.client.complete(code, cursor)
        async with asyncio.timeout(20):
            while (reply := await kernel.client.get_shell_msg(timeout=20))["parent_header"][
                "msg_id"
            ] != asked:
                pass
        content = reply["content"]
        return code[content["cursor_start"] : content["cursor_end"]], content["matches"]

    assert await complete("%%gpu 0.2 --st\nx = 1", 14) == ("--st", ["--strict"])
    assert await complete("%%gpu 0.2 --filter node=") == ("node=", ["node=node1"])
    assert await complete("%%gpu 0.2 --node-pool ") == ("", ["default"])
    assert await complete("%gpu resize 0.2") == ("0.2", ["0.2", "0.25"])
    # The share that this kernel had last comes first.
    assert (await kernel.run("%%gpu 0.3\n1")).status == "ok"
    assert (await complete("%%gpu 0."))[1][0] == "0.3"
    jupyter.pool.down = True
    assert await complete("%gpu att") == ("att", ["attach"])
    jupyter.pool.down = False
