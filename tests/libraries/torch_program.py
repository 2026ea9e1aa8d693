"""What unmodified PyTorch asks the math libraries for, on the GPU beside the CPU. Prints ``{CHECK: ERROR}`` as JSON.

Run by an interpreter with PyTorch for CUDA; imports nothing of this project. Tensors are made on the CPU and copied: PyTorch's
own kernels are machine code. An error is relative to the largest number of the CPU's result.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch  # type: ignore[import-not-found]  # too large to be a requirement
from torch.nn import functional  # type: ignore[import-not-found]
from torch.nn.attention import SDPBackend, sdpa_kernel  # type: ignore[import-not-found]


def attention(q: Any, k: Any, v: Any, bias: Any = None, **options: Any) -> Any:
    """By cuDNN on the GPU, by its definition on the CPU."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION if q.is_cuda else SDPBackend.MATH):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, **options)


def attention_gradients(q: Any, k: Any, v: Any, dy: Any, bias: Any = None, **options: Any) -> Any:
    inputs = [x.requires_grad_() for x in (q, k, v)]
    attention(q, k, v, bias, **options).backward(dy)
    return torch.cat([x.grad.cpu().flatten() for x in inputs])


def attention_checks() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    if "without-attention" in sys.argv:
        return
    for name, dtype, kv_heads, biased, options in (
        ("float16", torch.float16, 4, False, {}),
        ("bfloat16 causal", torch.bfloat16, 4, False, {"is_causal": True}),
        ("float16 of heads in groups", torch.float16, 2, False, {"is_causal": True, "enable_gqa": True}),
        ("float16 with a bias", torch.float16, 4, True, {}),
    ):
        # Steps lie before heads in memory, as a projection makes them.
        q, dy = (torch.randn(2, 70, 4, 64).to(dtype).transpose(1, 2) for _ in range(2))
        k, v = (torch.randn(2, 70, kv_heads, 64).to(dtype).transpose(1, 2) for _ in range(2))
        bias = [torch.randn(2, 4, 70, 70).to(dtype)] if biased else []
        yield f"attention {name}", lambda *x, of=options: attention(*x, **of), (q, k, v, *bias)
        yield (
            f"attention gradients {name}",
            lambda *x, of=options: attention_gradients(*x, **of),
            (q, k, v, dy, *bias),
        )


def ctc_checks() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    labels, steps, lengths = (
        torch.tensor(x, dtype=torch.int32) for x in ([1, 2, 2, 5, 3, 1], [12, 12, 12], [3, 2, 1])
    )

    # PyTorch 2.5 to 2.7 give cuDNN's kernel the addresses of lengths on the CPU (pytorch/pytorch#152421).
    def where(x: Any) -> tuple[Any, ...]:
        return labels, steps.to(x.device), lengths.to(x.device)

    def gradient(x: Any) -> Any:
        if x.is_cuda:  # what functional.ctc_loss keeps for its gradient
            return torch._cudnn_ctc_loss(x, *where(x), 0, True, False)[1]
        x.requires_grad_()
        functional.ctc_loss(x.log_softmax(-1), *where(x), reduction="sum").backward()
        return x.grad

    numbers = torch.randn(12, 3, 6)
    yield (
        "ctc_loss",
        lambda x: functional.ctc_loss(x, *where(x), reduction="none"),
        (numbers.log_softmax(-1),),
    )
    yield "ctc_loss gradient", gradient, (numbers,)


def lstm(network: Any, x: Any, h: Any, c: Any) -> Any:
    if not (x.is_cuda and network.dropout):
        return network(x, (h, c))
    # The module draws a seed of dropout by a kernel of PyTorch's own.
    drawn = torch._cudnn_init_dropout_state(network.dropout, True, 1, dtype=torch.uint8, device=x.device)
    weights, layers = list(network.parameters()), network.num_layers
    of_a_layer = len(weights) // (layers * (2 if network.bidirectional else 1))
    y, last_h, last_c, *_ = torch._cudnn_rnn(
        x, weights, of_a_layer, None, h, c, 2, network.hidden_size, network.proj_size, layers, False, network.dropout, True,
        network.bidirectional, [], drawn,
    )  # fmt: skip
    return y, (last_h, last_c)


def recurrent_checks() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """LSTMs, with their gradients. What is left out between layers is all or nothing: the CPU draws other numbers."""
    for name, hidden, options in (
        ("", 7, {"num_layers": 2, "bidirectional": True}),
        (" with a projection", 7, {"proj_size": 3}),
        (" with a projection, without biases", 7, {"proj_size": 3, "bias": False}),
        (" with a projection, two layers", 90, {"proj_size": 70, "num_layers": 2}),
        (" with a projection, both directions", 7, {"proj_size": 4, "num_layers": 2, "bidirectional": True}),
        (
            " with a projection, dropout",
            7,
            {"proj_size": 4, "num_layers": 2, "bidirectional": True, "dropout": 1.0},
        ),
    ):
        network = torch.nn.LSTM(5, hidden, **options)
        directions, size = 2 if network.bidirectional else 1, network.proj_size or hidden
        h, c = (torch.randn(directions * network.num_layers, 4, numbers) for numbers in (size, hidden))

        def run(x: Any, h: Any, c: Any, dy: Any, of: Any = network) -> Any:
            mine = copy.deepcopy(of).to(x)
            inputs = [one.detach().requires_grad_() for one in (x, h, c)]
            y, (last_h, last_c) = lstm(mine, *inputs)
            found = torch.autograd.grad([y, last_h, last_c], [*inputs, *mine.parameters()], [dy, h, c])
            # Moved apart: joining is a kernel of PyTorch's own.
            return torch.cat([one.detach().cpu().flatten() for one in (y, last_h, last_c, *found)])

        yield f"LSTM{name}", run, (torch.randn(6, 4, 5), h, c, torch.randn(6, 4, directions * size))


def transformer_checks() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """cuDNN's spatial transformers, by the names that PyTorch's dispatcher has for them, against the CPU's functions."""
    shape = (2, 3, 6, 5)

    def grid(theta: Any) -> Any:
        if theta.is_cuda:
            return torch.cudnn_affine_grid_generator(theta, *shape)
        return functional.affine_grid(theta, list(shape), align_corners=True)

    def grid_gradient(dgrid: Any) -> Any:
        if dgrid.is_cuda:
            return torch.ops.aten.cudnn_affine_grid_generator_backward(dgrid, *shape)
        theta = torch.zeros(2, 2, 3, dtype=dgrid.dtype, requires_grad=True)
        return torch.autograd.grad(grid(theta), theta, dgrid)[0]

    def sample_gradients(x: Any, grid: Any, dy: Any) -> Any:
        if x.is_cuda:
            made = torch.ops.aten.cudnn_grid_sampler_backward(x, grid, dy)
        else:
            x, grid = x.requires_grad_(), grid.requires_grad_()
            made = torch.autograd.grad(functional.grid_sample(x, grid, align_corners=True), [x, grid], dy)
        # Moved apart: joining is a kernel of PyTorch's own.
        return torch.cat([one.cpu().flatten() for one in made])

    for dtype in (torch.float32, torch.float64):
        name = str(dtype).removeprefix("torch.")
        places = (torch.rand(*shape[:1], *shape[2:], 2, dtype=dtype) - 0.5) * 2.5
        x, dy = torch.randn(2, 3, 7, 9, dtype=dtype), torch.randn(*shape, dtype=dtype)
        yield f"affine_grid {name}", grid, (torch.randn(2, 2, 3, dtype=dtype),)
        yield f"affine_grid gradient {name}", grid_gradient, (places,)
        yield (
            f"grid_sample {name}",
            lambda x, at: functional.grid_sample(x, at, align_corners=True),
            (x, places),
        )
        yield f"grid_sample gradients {name}", sample_gradients, (x, places, dy)


def checks() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Name, function, and its arguments on the CPU."""
    torch.manual_seed(0)
    a, b, bias = torch.randn(70, 90), torch.randn(90, 50), torch.randn(50)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64):
        yield f"mm {dtype}".replace("torch.", ""), torch.mm, (a.to(dtype), b.to(dtype))
    square = torch.randn(40, 40)
    for dtype in (torch.float32, torch.float64, torch.complex64):
        # In the order that cuSOLVER wants: another one is copied by a kernel of PyTorch's own.
        name = f"lu_factor {dtype}".replace("torch.", "")
        yield name, lambda x: torch.linalg.lu_factor_ex(x.T).LU, (square.to(dtype),)
    yield "mm of transposed", lambda x, y: x.T @ y.T, (b, a)
    yield "linear with bias", functional.linear, (a, b.T.contiguous(), bias)
    yield "bmm", torch.bmm, (torch.randn(6, 17, 33), torch.randn(6, 33, 20))
    yield "mv", torch.mv, (a, torch.randn(90))
    yield "dot", torch.dot, (torch.randn(5000), torch.randn(5000))
    image = torch.randn(3, 8, 17, 19)
    for name, weight, options in (
        ("conv2d", torch.randn(16, 8, 3, 3), {"padding": 1}),
        ("conv2d with strides and groups", torch.randn(16, 4, 3, 3), {"stride": 2, "groups": 2}),
        ("conv2d dilated", torch.randn(16, 8, 3, 3), {"dilation": 2}),
    ):
        yield name, lambda x, w, options=options: functional.conv2d(x, w, **options), (image, weight)
    yield "conv3d", functional.conv3d, (torch.randn(2, 3, 7, 8, 9), torch.randn(4, 3, 3, 3, 3))
    yield "conv_transpose2d", functional.conv_transpose2d, (image, torch.randn(8, 5, 3, 3))
    signal = torch.randn(4, 1000)
    yield "fft", torch.fft.fft, (torch.complex(signal, signal.flip(0)),)
    yield "rfft", torch.fft.rfft, (signal,)
    yield "rfft of a prime length", torch.fft.rfft, (signal[:, :997].contiguous(),)
    yield from attention_checks()
    yield from ctc_checks()
    yield from recurrent_checks()
    yield from transformer_checks()
    yield "fft2", torch.fft.fft2, (torch.complex(torch.randn(3, 24, 36), torch.randn(3, 24, 36)),)


def error(result: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest number."""
    kind = torch.complex128 if wanted.is_complex() else torch.float64
    difference = (result.to(kind) - wanted.to(kind)).abs().max()
    return float(difference / wanted.to(kind).abs().max())


def main() -> None:
    found: dict[str, Any] = {}
    for name, function, arguments in checks():
        try:
            on_device = function(*(argument.cuda() for argument in arguments)).cpu()
            wide = [x.to(torch.complex128 if x.is_complex() else torch.float64) for x in arguments]
            found[name] = error(on_device, function(*wide))
        except RuntimeError as failure:
            found[name] = str(failure).splitlines()[0]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
