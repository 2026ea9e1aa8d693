"""PyTorch's layers in the types and layouts that a GPU's libraries treat in ways of their own: results and gradients.

`GPU_CHECK_DEVICE=cpu` tries the program itself, without what only a GPU has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

DEVICE = os.environ.get("GPU_CHECK_DEVICE", "cuda")
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


def in_space(kind: type[nn.Module], shape: tuple[int, ...], **how: int) -> list[float]:
    layer = kind(shape[1], 12, 3, **how).to(DEVICE)
    x = torch.randn(shape, device=DEVICE, requires_grad=True)
    y = layer(x)
    return size(y, *torch.autograd.grad(y.square().sum(), (x, *layer.parameters())))


def pooled(kind: type[nn.Module], last: bool) -> list[float]:
    layout = torch.channels_last if last else torch.contiguous_format
    x = torch.randn(4, 8, 16, 16, device=DEVICE).to(memory_format=layout).requires_grad_()
    y = kind(3, 2, 1)(x)
    return size(y, *torch.autograd.grad(y.square().sum(), x))


def attention_with(heads: int, key_heads: int, masked: bool, dtype: torch.dtype) -> list[float]:
    q = torch.randn(2, heads, 96, 64, device=DEVICE, dtype=dtype, requires_grad=True)
    k, v = (
        torch.randn(2, key_heads, 160, 64, device=DEVICE, dtype=dtype, requires_grad=True) for _ in range(2)
    )
    mask = torch.randn(96, 160, device=DEVICE, dtype=dtype) if masked else None
    y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=heads != key_heads)
    return size(y, *torch.autograd.grad(y.square().sum(), (q, k, v)))


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


def recurrent(kind: type[nn.RNNBase], projection: int = 0) -> list[float]:
    options = {"proj_size": projection} if projection else {}
    network = kind(32, 64, 2, batch_first=True, bidirectional=True, **options).to(DEVICE)
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


def decompositions() -> list[float]:
    a = torch.randn(48, 48, device=DEVICE, dtype=torch.float64)
    positive = a @ a.T + 48 * torch.eye(48, device=DEVICE, dtype=torch.float64)
    return size(
        torch.linalg.cholesky(positive),
        torch.linalg.solve_triangular(torch.tril(positive), a, upper=False),
        torch.linalg.svd(a)[1],
        torch.linalg.eigh(positive)[0],
        torch.linalg.det(positive).log(),
        torch.linalg.lstsq(positive, a).solution,
        torch.fft.irfft(torch.fft.rfft(a, n=60)),
    )


def products(dtype: torch.dtype) -> list[float]:
    a, b = (torch.randn(3, 100, 100, device=DEVICE, dtype=dtype) for _ in range(2))
    bias = torch.randn(100, device=DEVICE, dtype=dtype)
    line = functional.gelu(functional.linear(a[0], b[0], bias))
    return size(a @ b, torch.baddbmm(a, b, a, beta=0.5, alpha=2), torch.addmv(bias, a[1], bias), line)


def moved() -> list[float]:
    """By PyTorch's own kernels, and those of CUB and Thrust."""
    x = torch.randn(20_000, device=DEVICE)
    places = torch.randint(0, 500, (20_000,), device=DEVICE)
    sums = torch.zeros(500, device=DEVICE, dtype=torch.float64).index_add(0, places, x.double())
    return size(
        *(sums, x.sort()[0][::7], x.topk(50)[0], x.double().cumsum(0), torch.unique(places).double()),
        *(x[x > 1], torch.histc(x, 20), torch.bincount(places).double(), x.double().logcumsumexp(0)),
        *(x.view(100, 200).median(1)[0], torch.nonzero(x > 2).double(), x.view(100, 200).argmax(1).double()),
    )


def losses() -> list[float]:
    x = torch.randn(64, 50, device=DEVICE, requires_grad=True)
    labels = torch.randint(0, 50, (64,), device=DEVICE)
    words = nn.Embedding(50, 50).to(DEVICE)
    y = functional.layer_norm(x + words(labels), (50,))
    loss = (
        functional.cross_entropy(y, labels)
        + functional.smooth_l1_loss(y, x.detach())
        + y.softmax(1)[:, 0].sum()
    )
    return size(loss, *torch.autograd.grad(loss, (x, words.weight)))


def drawn() -> list[float]:
    """By Philox, which PyTorch computes itself: both sides draw the same numbers."""
    return size(
        *(torch.randn(1000, device=DEVICE), torch.rand(1000, device=DEVICE).square()),
        *(
            torch.randperm(1000, device=DEVICE)[:10].double(),
            torch.bernoulli(torch.full((999,), 0.3, device=DEVICE)),
        ),
        functional.dropout(torch.ones(5000, device=DEVICE), 0.2),
    )


def trained(capturable: bool) -> list[float]:
    """By a fused optimiser and a scaler of gradients."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=not capturable, capturable=capturable)
    scaler = torch.amp.GradScaler(DEVICE)
    x, y = torch.randn(128, 32, device=DEVICE), torch.randn(128, 8, device=DEVICE)
    for _ in range(5):
        optimizer.zero_grad()
        with torch.autocast(DEVICE, F16 if DEVICE == "cuda" else BF16):
            loss = functional.mse_loss(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return size(loss, *model.parameters())


def between_streams() -> list[float]:
    """Page-locked memory, events and streams, as loaders of data use them."""
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    host = torch.randn(1 << 16).pin_memory()
    with torch.cuda.stream(side):
        there = host.to(DEVICE, non_blocking=True)
        event.record()
    torch.cuda.current_stream().wait_event(event)
    back = torch.empty(1 << 16).pin_memory()
    back.copy_(there * 2, non_blocking=True)
    torch.cuda.synchronize()
    return size(back)


def speech() -> list[float]:
    odds = torch.randn(20, 2, 10, device=DEVICE, requires_grad=True)
    labels = torch.randint(1, 10, (2, 5), dtype=torch.int32)
    lengths = (torch.tensor([20, 20], dtype=torch.int32), torch.tensor([5, 5], dtype=torch.int32))
    loss = functional.ctc_loss(odds.log_softmax(2), labels, *lengths)
    return size(loss, *torch.autograd.grad(loss, odds))


def warped() -> list[float]:
    """A spatial transformer, turned and moved partly out of the image."""
    x = torch.randn(2, 3, 24, 32, device=DEVICE, requires_grad=True)
    theta = torch.tensor([[[0.9, -0.3, 0.2], [0.3, 0.9, -0.1]]], device=DEVICE).repeat(2, 1, 1)
    theta.requires_grad_()
    grid = functional.affine_grid(theta, [2, 3, 20, 20], align_corners=True)
    y = functional.grid_sample(x, grid, align_corners=True)
    return size(y, *torch.autograd.grad(y.square().sum(), (x, theta)))


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
    for kind, shape, how in (
        (nn.Conv1d, (4, 8, 40), {"padding": 1}),
        (nn.Conv3d, (2, 4, 8, 9, 10), {"padding": 1}),
        (nn.ConvTranspose2d, (2, 8, 9, 9), {"stride": 2, "padding": 1}),
        (nn.Conv2d, (2, 8, 20, 20), {"dilation": 2, "groups": 4}),
    ):
        yield f"{kind.__name__}, {how}", lambda k=kind, s=shape, h=how: in_space(k, s, **h)
    for kind in (nn.MaxPool2d, nn.AvgPool2d):
        for last in (False, True):
            yield f"{kind.__name__}, channels last {last}", lambda k=kind, c=last: pooled(k, c)
    for name, dtype in (("bf16", BF16), ("f16", F16)):
        for causal in (False, True):
            yield f"attention, {name}, causal {causal}", lambda d=dtype, c=causal: attention(100, d, c)
        yield f"attention, {name}, with a mask", lambda d=dtype: attention_with(4, 4, True, d)
        yield f"attention, {name}, heads in groups", lambda d=dtype: attention_with(8, 2, False, d)
    yield "attention, 1024 steps, packed", lambda: attention(1024, BF16, True, heads=12, packed=True)
    for way in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
        yield f"attention, {way.name}", lambda w=way: attention_by(w)
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        yield kind.__name__, lambda k=kind: recurrent(k)
    yield "LSTM with a projection", lambda: recurrent(nn.LSTM, 24)
    for name, dtype in (("bf16", BF16), ("f16", F16), ("f32", F32), ("f64", torch.float64)):
        yield f"products, {name}", lambda d=dtype: products(d)
    yield "linear algebra and transforms", algebra
    yield "decompositions", decompositions
    yield "sorts, sums and places", moved
    yield "losses", losses
    yield "random numbers", drawn
    yield "training with a fused optimiser", lambda: trained(False)
    yield "training with a capturable optimiser", lambda: trained(True)
    yield "CTC loss", speech
    yield "spatial transformer", warped
    yield "sparse product", sparse
    if DEVICE == "cuda":
        yield "product of 8-bit floats", eight_bits
        yield "graph", replayed
        yield "streams and page-locked memory", between_streams


def main() -> None:
    found: dict[str, list[float]] = {}
    problems: dict[str, str] = {}  # no results: the same error on both sides makes nothing equal
    for name, layer in layers():
        torch.manual_seed(0)
        try:
            found[name] = layer()
        except Exception as error:  # the others are shown all the same
            problems[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    print(json.dumps({"result": found, "problems": problems, "version": torch.__version__}))


if __name__ == "__main__":
    main()
