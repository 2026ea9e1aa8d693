"""Compiles Triton kernels for compute capability 12.0 without a GPU: `python triton_sources.py FOLDER`.

Run by triton_kernels.py with an interpreter that has Triton 3.x. Leaves a JSON file per kernel: PTX, entry, dynamic
shared memory, threads, and for products of matrices what is multiplied.
"""
# ruff: noqa: SIM108
# mypy: ignore-errors

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TARGET = GPUTarget("cuda", 120, 32)


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def softmax(out, x, stride, rows, columns, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=3):
        c = tl.arange(0, BLOCK)
        value = tl.load(x + row * stride + c, mask=c < columns, other=-float("inf"))
        power = tl.exp(value - tl.max(value, axis=0))
        tl.store(out + row * stride + c, power / tl.sum(power, axis=0), mask=c < columns)


@triton.jit
def matmul(
    a, b, c, M, N, K, a_row, b_k, c_row,
    TILE: tl.constexpr, DEPTH: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr, TRANSPOSED: tl.constexpr,
):  # fmt: skip
    m = (tl.program_id(0) * TILE + tl.arange(0, TILE)) % M
    n = (tl.program_id(1) * TILE + tl.arange(0, TILE)) % N
    k = tl.arange(0, DEPTH)
    at_a = a + m[:, None] * a_row + k[None, :]
    if TRANSPOSED:
        at_b = b + k[:, None] + n[None, :] * b_k
    else:
        at_b = b + k[:, None] * b_k + n[None, :]
    total = tl.zeros((TILE, TILE), dtype=SUM)
    for done in range(0, K, DEPTH):
        x = tl.load(at_a, mask=k[None, :] < K - done, other=0.0)
        y = tl.load(at_b, mask=k[:, None] < K - done, other=0.0)
        total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=SUM)
        at_a += DEPTH
        at_b += DEPTH if TRANSPOSED else DEPTH * b_k
    tl.store(c + m[:, None] * c_row + n[None, :], total.to(c.dtype.element_ty))


@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    tl.store(out + i, tl.where(tl.rand(seed, i) > p, value / (1 - p), 0.0), mask=i < n)


@triton.jit
def layer_norm(x, y, weight, bias, mean_out, rstd_out, stride, n, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + c, mask=c < n, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=0) / n
    centred = tl.where(c < n, value - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + epsilon)
    tl.store(mean_out + row, mean)
    tl.store(rstd_out + row, rstd)
    scaled = centred * rstd * tl.load(weight + c, mask=c < n) + tl.load(bias + c, mask=c < n)
    tl.store(y + row * stride + c, scaled, mask=c < n)


@triton.jit
def add_under_lock(total, lock, x, BLOCK: tl.constexpr):
    """The locks of the backward pass of layer norm."""
    c = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total + c, tl.load(total + c) + tl.load(x + c))
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def attention(q, k, v, out, scale, n, WIDTH: tl.constexpr, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    across, down = tl.arange(0, WIDTH), tl.arange(0, TILE)
    query = tl.load(q + rows[:, None] * WIDTH + across[None, :])
    most = tl.zeros([TILE], tl.float32) - float("inf")
    weight = tl.zeros([TILE], tl.float32)
    total = tl.zeros([TILE, WIDTH], tl.float32)
    for start in tl.range(0, n, TILE, num_stages=3):
        keys = tl.load(k + (start + down)[None, :] * WIDTH + across[:, None])
        score = tl.dot(query, keys) * scale
        now = tl.maximum(most, tl.max(score, 1))
        power, shrink = tl.math.exp2(score - now[:, None]), tl.math.exp2(most - now)
        weight = weight * shrink + tl.sum(power, 1)
        values = tl.load(v + (start + down)[:, None] * WIDTH + across[None, :])
        total = tl.dot(power.to(values.dtype), values, total * shrink[:, None])
        most = now
    tl.store(
        out + rows[:, None] * WIDTH + across[None, :], (total / weight[:, None]).to(out.dtype.element_ty)
    )


@triton.jit
def scaled_product(
    a, b, a_scale, b_scale, c,
    TILE: tl.constexpr, DEPTH: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
    A_IN_BYTE: tl.constexpr, B_IN_BYTE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, TILE)
    ka, kb, ks = (
        tl.arange(0, DEPTH // A_IN_BYTE),
        tl.arange(0, DEPTH // B_IN_BYTE),
        tl.arange(0, DEPTH // GROUP),
    )
    x = tl.load(a + i[:, None] * (DEPTH // A_IN_BYTE) + ka[None, :])
    y = tl.load(b + kb[:, None] + i[None, :] * (DEPTH // B_IN_BYTE))
    u = tl.load(a_scale + i[:, None] * (DEPTH // GROUP) + ks[None, :])
    w = tl.load(b_scale + i[:, None] * (DEPTH // GROUP) + ks[None, :])
    tl.store(c + i[:, None] * TILE + i[None, :], tl.dot_scaled(x, u, A, y, w, B))


@triton.jit
def functions(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    positive = tl.abs(v) + 1
    tl.store(out + i, tl.cumsum(v, 0))
    tl.store(out + BLOCK + i, tl.sort(v))
    some = tl.sin(v) + tl.cos(v) + tl.log(positive) + tl.sqrt(positive) + tl.rsqrt(positive) + tl.erf(v)
    tl.store(
        out + 2 * BLOCK + i, some + tl.floor(v) + tl.ceil(v) + tl.exp2(v) + tl.log2(positive) + tl.sigmoid(v)
    )
    tl.atomic_add(out + 3 * BLOCK, tl.sum(v, 0))
    tl.store(out + 4 * BLOCK + tl.argmax(v, 0), 1.0)
    tl.store(out + 5 * BLOCK + i, tl.flip(v))
    tl.store(out + 6 * BLOCK + tl.arange(0, 64), tl.histogram((v * 4).to(tl.int32), 64).to(tl.float32))
    tl.store(out + 7 * BLOCK + i, tl.gather(v, (i + 1) % BLOCK, 0))


@triton.jit
def cast(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


@triton.jit
def atomics(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(out + i, tl.load(x + i), sem="relaxed")
    tl.atomic_add(out + i // 2, tl.load(x + i))


@triton.jit
def integer_atomics(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.atomic_max(out + i, v)
    tl.atomic_min(out + i, v)
    tl.atomic_and(out + i, v)
    tl.atomic_or(out + i, v)
    tl.atomic_xor(out + i, v)
    tl.atomic_xchg(out + i, v)
    tl.atomic_cas(out + i, v, v, sem="acquire", scope="cta")


@triton.jit
def reductions(x, out, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + m[:, None] * N + n[None, :])
    tl.store(out + m, tl.sum(v, 1))
    tl.store(out + M + n, tl.max(v, 0))
    tl.store(out + 2 * M + n[:, None] * M + m[None, :], tl.trans(v))


def kernels():
    """Name, function, types of the arguments, constants, options, and the case of a product."""
    f = "*fp32"
    yield "add", add, [f, f, f, "i32"], {"BLOCK": 1024}, {}, {}
    yield "softmax", softmax, [f, f, "i32", "i32", "i32"], {"BLOCK": 1024}, {"num_warps": 8}, {}
    products = [
        ("fp16", "fp16", "fp16", tl.float32, "ieee", 64, {"num_stages": 3}),
        ("fp16", "fp16", "fp16", tl.float16, "ieee", 64, {}),
        ("bf16", "bf16", "bf16", tl.float32, "ieee", 64, {"num_stages": 4, "num_warps": 8}),
        ("fp32", "fp32", "fp32", tl.float32, "tf32", 32, {"num_stages": 3}),
        ("fp32", "fp32", "fp32", tl.float32, "tf32x3", 32, {}),
        ("fp32", "fp32", "fp32", tl.float32, "ieee", 32, {}),
        ("i8", "i8", "i32", tl.int32, "ieee", 64, {"num_stages": 3}),
        ("fp8e4nv", "fp8e4nv", "fp16", tl.float32, "ieee", 64, {"num_stages": 3}),
        ("fp8e5", "fp8e5", "fp16", tl.float32, "ieee", 64, {}),
        ("fp8e4nv", "fp8e5", "fp32", tl.float32, "ieee", 64, {}),
        ("fp64", "fp64", "fp64", tl.float64, "ieee", 16, {}),
    ]
    for a, b, c, total, precision, depth, options in products:
        for transposed in (False, True):
            constants = {
                "TILE": 64,
                "DEPTH": depth,
                "SUM": total,
                "PRECISION": precision,
                "TRANSPOSED": transposed,
            }
            types = ["*" + a, "*" + b, "*" + c, *["i32"] * 6]
            name = f"matmul_{a}_{b}_{c}_{total}_{precision}{'_transposed' if transposed else ''}"
            yield name, matmul, types, constants, options, {"a": a, "b": b, "c": c, "transposed": transposed}
    yield "dropout", dropout, [f, f, "i32", "fp32", "i32"], {"BLOCK": 1024}, {}, {}
    yield (
        "layer_norm",
        layer_norm,
        [*["*fp16"] * 4, f, f, "i32", "i32", "fp32"],
        {"BLOCK": 1024},
        {"num_warps": 8},
        {},
    )
    yield "add_under_lock", add_under_lock, [f, "*i32", f], {"BLOCK": 128}, {}, {}
    for t in ("fp16", "bf16", "fp8e5"):
        yield (
            f"attention_{t}",
            attention,
            [*["*" + t] * 4, "fp32", "i32"],
            {"WIDTH": 64, "TILE": 64},
            {"num_stages": 3},
            {},
        )
    for a, b, a_type, b_type, scale, group in (
        ("e4m3", "e4m3", "fp8e4nv", "fp8e4nv", "u8", 32),
        ("e5m2", "e4m3", "fp8e5", "fp8e4nv", "u8", 32),
        ("e2m1", "e2m1", "u8", "u8", "u8", 32),
        ("e2m1", "e4m3", "u8", "fp8e4nv", "u8", 32),
        ("e2m1", "e2m1", "u8", "u8", "fp8e4nv", 16),
    ):
        constants = {"TILE": 64, "DEPTH": 128, "A": a, "B": b, "GROUP": group}
        constants |= {"A_IN_BYTE": 1 + (a == "e2m1"), "B_IN_BYTE": 1 + (b == "e2m1")}
        types = ["*" + a_type, "*" + b_type, "*" + scale, "*" + scale, f]
        yield f"scaled_{a}_{b}_{scale}", scaled_product, types, constants, {}, {}
    yield "functions", functions, [f, f], {"BLOCK": 256}, {}, {}
    for source in ("fp32", "fp16", "bf16", "fp8e5", "fp8e4nv", "i8", "i64", "fp64", "u32"):
        for to in ("fp32", "fp16", "bf16", "fp8e5", "fp8e4nv", "fp64", "i8", "i16", "i32", "i64", "u8"):
            if source in ("fp32", "fp16", "bf16") or to in ("fp32", "fp16", "bf16"):
                yield f"cast_{source}_{to}", cast, ["*" + source, "*" + to], {"BLOCK": 512}, {}, {}
    for t in ("fp32", "fp16", "bf16", "fp64", "i32", "i64"):
        yield f"atomics_{t}", atomics, ["*" + t] * 2, {"BLOCK": 256}, {}, {}
    for t in ("i32", "i64", "u32"):
        yield f"integer_atomics_{t}", integer_atomics, ["*" + t] * 2, {"BLOCK": 256}, {}, {}
    for t in ("fp32", "fp16", "i32", "fp64"):
        yield f"reductions_{t}", reductions, ["*" + t] * 2, {"M": 64, "N": 64}, {}, {}


def main() -> None:
    folder = Path(sys.argv[1])
    for name, function, types, constants, options, case in kernels():
        names = function.arg_names
        signature = dict(zip(names, types, strict=False)) | dict.fromkeys(constants, "constexpr")
        aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if signature[n][0] in "*i"}
        values = {(names.index(key),): value for key, value in constants.items()}
        made = triton.compile(ASTSource(function, signature, values, aligned), target=TARGET, options=options)
        ptx = made.asm["ptx"]
        entry = re.search(r"\.entry (\w+)\(", ptx)[1]
        threads = made.metadata.num_warps * 32
        record = {
            "name": name,
            "ptx": ptx,
            "entry": entry,
            "shared": made.metadata.shared,
            "threads": threads,
            "case": case,
        }
        (folder / f"{name}.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main()
