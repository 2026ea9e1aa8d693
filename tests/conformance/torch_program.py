"""PyTorch in eager mode on a driver that executes nothing: what can be said of its control flow.

Run by an interpreter with PyTorch (CUDA), as a client of a worker with the null driver: ``torch_eager.py`` starts it.
Each check is a function; the program prints one line of JSON for each. Kernels compute nothing here, but memory, copies, fills,
streams, events, graphs, modules and errors are real.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

Check = Callable[[], dict[str, Any] | None]
CHECKS: list[Check] = []

MIB = 1 << 20
SHARE = int(os.environ["SHARE_MIB"]) * MIB

runtime = ctypes.CDLL("libcuda.so.1")


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


def counters() -> dict[str, Any]:
    text = ctypes.create_string_buffer(1 << 16)
    runtime.gpupool_counters(text, len(text), 0)
    found: dict[str, Any] = json.loads(text.value)
    return found


def waited(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    """Blocking round trips by name between two readings."""
    earlier = before["asks_by_name"]
    counts = {name: n - earlier.get(name, [0])[0] for name, (n, _) in after["asks_by_name"].items()}
    return {name: n for name, n in counts.items() if n}


@check
def a_first_tensor_takes_few_round_trips() -> dict[str, Any]:
    """HELLO and LEASE are two more."""
    x = torch.ones(1, device="cuda")
    now = counters()
    assert now["asks"] + 2 <= 5, now["asks_by_name"]
    assert torch.cuda.get_device_name() == "null driver (executes nothing)"
    assert x.device.type == "cuda"
    return {"asks": now["asks"] + 2, "by_name": waited({"asks_by_name": {}}, now)}


@check
def the_share_is_the_device() -> dict[str, Any]:
    free, total = torch.cuda.mem_get_info()
    assert total == SHARE, (total, SHARE)
    assert 0 < free <= total
    assert torch.cuda.get_device_properties(0).total_memory == SHARE
    return {"free": free, "total": total}


@check
def many_operations_reach_the_device() -> dict[str, Any]:
    before = counters()
    x = torch.randn(256, 256, device="cuda")
    y = torch.rand(256, 256, device="cuda", dtype=torch.float64).float()
    labels = torch.zeros(256, dtype=torch.long, device="cuda")
    image = x[None, None]
    results = [
        *(x + y, x * 2, x.exp(), x.tanh(), x.clamp(0, 1), x.half().bfloat16(), torch.where(x > 0, x, y)),
        *(x.sum(), x.mean(0), x.max(1).values, x.argmax(1), x.std(), x.norm(), x.softmax(1), x.cumsum(0)),
        *(x.sort().values, x.topk(5).values, x.unique(), x.nonzero(), x.roll(3), x.flip(0), x.triu()),
        *(x[:, ::2].contiguous(), x[torch.arange(10, device="cuda")], x.t().contiguous(), torch.cat([x, y])),
        *(torch.linspace(0, 1, 10, device="cuda"), torch.eye(5, device="cuda"), x.masked_fill(x > 0, 0)),
        *(
            functional.layer_norm(x, (256,)),
            functional.gelu(x),
            functional.dropout(x),
            functional.embedding(labels, x),
        ),
        *(functional.cross_entropy(x, labels), functional.max_pool2d(image, 2)),
        functional.interpolate(image, scale_factor=2),
    ]
    torch.cuda.synchronize()
    after = counters()
    kernels = after["worker"]["kernels"] - before["worker"]["kernels"]
    assert kernels > len(results)
    sent, bytes_sent = after["images_sent"]
    # Without machine code of other architectures; PyTorch's images have 700 KB on average.
    assert bytes_sent / sent < 500_000, (sent, bytes_sent)
    again = counters()
    _ = [x + y, x * 2, x.exp(), x.tanh(), x.sum(), x.sort().values]
    assert counters()["images_sent"] == again["images_sent"]
    return {"kernels": kernels, "modules": sent, "module_bytes": bytes_sent, "waited": waited(before, after)}


def model(count: int) -> tuple[list[torch.nn.Parameter], Callable[[], torch.Tensor]]:
    """Parameters, and a loss of all of them without a matrix product: cuBLAS cannot start here."""
    parameters = [torch.nn.Parameter(torch.randn(64, 32, device="cuda")) for _ in range(count)]
    x = torch.randn(64, 32, device="cuda")

    def loss() -> torch.Tensor:
        h = x
        for parameter in parameters:
            h = torch.tanh(h + parameter)
        return (h * h).mean()

    return parameters, loss


@check
def a_training_step_waits_once() -> dict[str, Any]:
    parameters, loss_of = model(200)
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    seen = []
    for _ in range(6):
        before = counters()
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        loss.item()
        seen.append(waited(before, counters()))
    assert seen[-1] == {"cuStreamSynchronize": 1}, (
        seen
    )  # .item() copies to pinned memory and waits for its stream
    assert all(parameter.grad is not None for parameter in parameters)
    return {"first": sum(seen[0].values()), "last": sum(seen[-1].values())}


@check
def memory_is_real_and_in_order() -> None:
    for _ in range(50):
        there = torch.randint(0, 1 << 40, (5000,), dtype=torch.int64)
        x = there.to("cuda")
        y = x.clone()
        z = torch.empty_like(y)
        z.copy_(y)
        x.copy_(torch.zeros_like(there))  # zero_() is a kernel, from PyTorch 2.14 on
        assert torch.equal(z.cpu(), there)
        assert not x.cpu().any()
        assert z[4321].item() == there[4321].item()


@check
def streams_wait_for_events() -> None:
    first, second = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    data = torch.arange(1 << 20, dtype=torch.int32)
    for _ in range(20):
        ready = torch.cuda.Event()
        with torch.cuda.stream(first):
            x = data.pin_memory().to("cuda", non_blocking=True)
            ready.record()
        second.wait_event(ready)
        with torch.cuda.stream(second):
            y = x.clone()
            x.record_stream(second)
        second.synchronize()
        assert torch.equal(y.cpu(), data)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    torch.randn(1000, device="cuda").exp()
    end.record()
    end.synchronize()
    assert start.query()
    assert end.query()
    assert start.elapsed_time(end) >= 0
    assert first.query()


@check
def pinned_memory_goes_both_ways() -> None:
    source = torch.arange(100_000, dtype=torch.float32).pin_memory()
    assert source.is_pinned()
    x = source.to("cuda", non_blocking=True)
    back = torch.empty(100_000, pin_memory=True)
    back.copy_(x, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    assert torch.equal(back, source)


@check
def handles_are_given_back() -> dict[str, Any]:
    """A handle's place is used again only when the worker has dropped what it stood for."""
    places = set()
    for _ in range(2000):
        event = torch.cuda.Event()
        event.record()
        places.add(event.cuda_event & 0xFFFFFFFF)
        del event
    gc.collect()
    torch.cuda.synchronize()
    assert len(places) < 100, len(places)
    return {"places": len(places)}


@check
def the_caching_allocator_stays_in_the_share() -> dict[str, Any]:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_reserved()
    blocks = [torch.empty(8 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
    reserved = torch.cuda.memory_reserved()
    assert reserved >= base + 64 * MIB
    used = counters()["worker"]["memory_used"][0]
    assert used >= reserved, (used, reserved)
    assert used <= SHARE
    del blocks
    gc.collect()
    before = torch.cuda.mem_get_info()[0]
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    # What cudaFree gives back counts as free at once; the worker keeps it mapped for the next allocation.
    assert free - before >= 64 * MIB, (before, free)
    assert torch.cuda.memory_reserved() == reserved - (free - before)
    return {"reserved": reserved, "worker": used, "given_back": free - before}


@check
def memory_beyond_the_share_is_an_out_of_memory_error() -> dict[str, Any]:
    gc.collect()
    torch.cuda.empty_cache()
    held = []
    try:
        while len(held) < 10_000:
            held.append(torch.empty(16 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        message = str(error)
    else:
        raise AssertionError("the share has no end")
    assert "out of memory" in message
    count = len(held)
    assert count * 16 * MIB <= SHARE
    assert count * 16 * MIB >= SHARE * 3 // 4
    held.clear()
    gc.collect()
    torch.cuda.empty_cache()
    x = torch.ones(4 * MIB, device="cuda")
    assert x.numel() == 4 * MIB
    try:
        torch.empty(SHARE * 2, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        return {"blocks": count, "said": message.split(". ")[0]}
    raise AssertionError("twice the share was given")


KERNEL = """
extern "C" __global__ void write(float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 1.0f;
}
"""


@check
def an_illegal_launch_is_refused_and_nothing_breaks() -> dict[str, Any]:
    write = torch.cuda._compile_kernel(KERNEL, "write")
    x = torch.zeros(1000, device="cuda")
    write((4, 1, 1), (256, 1, 1), (x, 1000))
    for grid, block in (((1, 1, 1), (2048, 1, 1)), ((0, 1, 1), (32, 1, 1)), ((1, 70_000, 1), (32, 1, 1))):
        try:
            write(grid, block, (x, 1000))
            torch.cuda.synchronize()
        except RuntimeError as error:
            said = str(error)
            assert "invalid" in said.lower(), said
        else:
            raise AssertionError(f"grid {grid}, block {block} was launched")
    write((4, 1, 1), (256, 1, 1), (x, 1000))
    torch.cuda.synchronize()
    assert not x.cpu().any()
    return {"said": said}


class Numbers(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((100,), float(index))


@check
def a_data_loader_forks_and_pins() -> None:
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True)
    seen = []
    for batch in loader:
        there = batch.to("cuda", non_blocking=True)
        seen.append(there.cpu())
    assert torch.equal(torch.cat(seen)[:, 0], torch.arange(64.0))


@check
def a_forked_child_cannot_use_the_gpu() -> None:
    pid = os.fork()
    if pid == 0:
        try:
            torch.ones(1, device="cuda")
        except RuntimeError as error:
            os._exit(0 if "fork" in str(error) else 3)
        except BaseException:
            os._exit(2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert torch.ones(3).to("cuda").cpu().sum().item() == 3


@check
def matrix_products_are_posted() -> dict[str, Any]:
    """cuBLAS and cuBLASLt: nothing waits for a product, whatever comes before it."""
    x, weight, bias = (torch.ones(*shape, device="cuda") for shape in ((8, 4), (16, 4), (16,)))
    products = (
        lambda: x @ weight.T,
        lambda: torch.nn.functional.linear(x, weight, bias),
        lambda: torch.bmm(x.expand(3, 8, 4), weight.T.expand(3, 4, 16)),
        lambda: x.half() @ weight.T.half(),
    )
    for product in products:
        product()
    torch.cuda.synchronize()
    before = counters()
    for product in products:
        product()
    after = counters()
    assert waited(before, after) == {}, waited(before, after)
    return {"posts": after["posts"] - before["posts"]}


@check
def small_copies_are_counted() -> dict[str, Any]:
    x = torch.arange(300).to("cuda")
    before = counters()
    total = sum(x[i].item() for i in range(300))
    after = counters()
    assert total == 300 * 299 // 2
    assert after["copies_to_host"][0] - before["copies_to_host"][0] == 300
    asked = waited(before, after)
    assert asked == {"cuStreamSynchronize": 300}, asked
    return {"seconds": after["ask_seconds"] - before["ask_seconds"]}


@check
def a_graph_is_captured_and_replayed() -> dict[str, Any]:
    x = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x + 1) * 2
    before = counters()["worker"]["kernels"]
    replays = counters()
    for _ in range(10):
        graph.replay()
    after = waited(replays, counters())
    torch.cuda.synchronize()
    assert after == {}, after
    return {"shape": list(y.shape), "kernels": counters()["worker"]["kernels"] - before}


def results(wanted: list[str]) -> Iterator[dict[str, Any]]:
    for function in CHECKS:
        if wanted and function.__name__ not in wanted:
            continue
        started = time.monotonic()
        try:
            detail, error = function() or {}, ""
        except Exception:
            detail, error = {}, traceback.format_exc()
        yield {
            "check": function.__name__,
            "ok": not error,
            "seconds": round(time.monotonic() - started, 3),
            "detail": detail,
            "error": error,
        }


if __name__ == "__main__":
    failed = 0
    for result in results(sys.argv[1:]):
        failed += not result["ok"]
        print(json.dumps(result), flush=True)
    sys.exit(1 if failed else 0)
