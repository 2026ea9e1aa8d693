"""PyTorch's layers in the types and layouts that a GPU's libraries treat in ways of their own: results and gradients."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE = "cuda"
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def size(*tensors: torch.Tensor) -> list[float]:
    """Of each tensor, the mean of its elements without their signs."""
    return [round(float(tensor.detach().double().abs().mean()), 6) for tensor in tensors]


def convolution(
    channels: int,
    filters: int,
    reach: int,
    dtype: torch.dtype,
    last: bool,
    groups: int = 1,
    stride: int = 1,
) -> list[float]:
    layout = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(8, channels, 32, 32, device=DEVICE, dtype=dtype).to(memory_format=layout)
    w = torch.randn(filters, channels // groups, reach, reach, device=DEVICE, dtype=dtype).to(
        memory_format=layout
    )
    x.requires_grad_()
    w.requires_grad_()
    y = functional.conv2d(x, w, None, stride, reach // 2, 1, groups)
    return size(y, *torch.autograd.grad(y, (x, w), torch.ones_like(y)))


def attention(
    steps: int, dtype: torch.dtype, causal: bool, *, heads: int = 4, packed: bool = False
) -> list[float]:
    """``packed``: Q, K and V lie in one tensor, as one layer makes them."""
    if packed:
        whole = torch.randn(2, steps, 3, heads, 64, device=DEVICE, dtype=dtype)
        q, k, v = (part.requires_grad_() for part in whole.permute(2, 0, 3, 1, 4).unbind(0))
    else:
        q, k, v = (
            torch.randn(2, heads, steps, 64, device=DEVICE, dtype=dtype, requires_grad=True) for _ in range(3)
        )
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return size(y, *torch.autograd.grad(y.square().sum(), (q, k, v)))


def attention_by(way: SDPBackend) -> list[float]:
    with sdpa_kernel(way):
        return attention(128, BF16, True)


def recurrent(kind: type[nn.RNNBase]) -> list[float]:
    network = kind(32, 64, 2, batch_first=True, bidirectional=True).to(DEVICE)
    x = torch.randn(4, 10, 32, device=DEVICE, requires_grad=True)
    y, _ = network(x)
    return size(y, *torch.autograd.grad(y.square().sum(), (x, *network.parameters())))


def normalised(dtype: torch.dtype, last: bool) -> list[float]:
    layout = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(4, 16, 8, 8, device=DEVICE, dtype=dtype).to(memory_format=layout).requires_grad_()
    y = nn.BatchNorm2d(16).to(DEVICE)(x)
    return size(y, *torch.autograd.grad(y.float().pow(3).sum(), x))


def algebra() -> list[float]:
    a = torch.randn(64, 64, device=DEVICE, dtype=torch.float64)
    return size(
        torch.linalg.inv(a),
        torch.linalg.svdvals(a),
        torch.linalg.eigvalsh(a @ a.T),
        torch.linalg.qr(a)[1],
        torch.linalg.solve(a, a),
        torch.fft.fft(a),
        torch.fft.rfft2(a),
        torch.fft.fft(a.flatten()[:1000]),
    )


def speech() -> list[float]:
    odds = torch.randn(20, 2, 10, device=DEVICE, requires_grad=True)
    labels = torch.randint(1, 10, (2, 5), dtype=torch.int32)
    lengths = (torch.tensor([20, 20], dtype=torch.int32), torch.tensor([5, 5], dtype=torch.int32))
    loss = functional.ctc_loss(odds.log_softmax(2), labels, *lengths)
    return size(loss, *torch.autograd.grad(loss, odds))


def sparse() -> list[float]:
    a = torch.randn(32, 32, device=DEVICE)
    return size((a * (a > 1)).to_sparse_csr() @ torch.ones(32, 8, device=DEVICE))


def eight_bits() -> list[float]:
    a = torch.randn(64, 64, device=DEVICE).to(torch.float8_e4m3fn)
    one = torch.ones((), device=DEVICE)
    return size(torch._scaled_mm(a, a.t(), one, one, out_dtype=BF16))


def replayed() -> list[float]:
    x, w = torch.zeros(64, 64, device=DEVICE), torch.randn(64, 64, device=DEVICE)
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = (x @ w).relu()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        y = (x @ w).relu()
    x.copy_(torch.ones_like(x))
    graph.replay()
    return size(y)


def layers() -> Iterator[tuple[str, Callable[[], list[float]]]]:
    for name, dtype in (("bf16", BF16), ("f16", F16), ("f32", F32)):
        for last in (False, True):
            where = f"{name}, channels {'last' if last else 'first'}"
            yield f"conv 7x7, {where}", lambda d=dtype, c=last: convolution(3, 64, 7, d, c, stride=2)
            yield f"conv 3x3, {where}", lambda d=dtype, c=last: convolution(64, 64, 3, d, c)
            yield f"conv 1x1, {where}", lambda d=dtype, c=last: convolution(64, 128, 1, d, c)
            yield f"conv by channel, {where}", lambda d=dtype, c=last: convolution(64, 64, 3, d, c, 64)
            yield f"conv in groups, {where}", lambda d=dtype, c=last: convolution(64, 64, 3, d, c, 4)
            yield f"batch norm, {where}", lambda d=dtype, c=last: normalised(d, c)
    for name, dtype in (("bf16", BF16), ("f16", F16)):
        for causal in (False, True):
            yield f"attention, {name}, causal {causal}", lambda d=dtype, c=causal: attention(100, d, c)
    yield "attention, 1024 steps, packed", lambda: attention(1024, BF16, True, heads=12, packed=True)
    for way in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
        yield f"attention, {way.name}", lambda w=way: attention_by(w)
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        yield kind.__name__, lambda k=kind: recurrent(k)
    yield "linear algebra and transforms", algebra
    yield "CTC loss", speech
    yield "sparse product", sparse
    yield "product of 8-bit floats", eight_bits
    yield "graph", replayed


def main() -> None:
    found: dict[str, object] = {}
    for name, layer in layers():
        torch.manual_seed(0)
        try:
            found[name] = layer()
        except Exception as error:  # the others are shown all the same
            found[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    print(json.dumps({"result": found, "version": torch.__version__}))


if __name__ == "__main__":
    main()
