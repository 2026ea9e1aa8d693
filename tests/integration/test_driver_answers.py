"""Answers of the driver API that programs were found to depend on: the same alone and through a worker.

One program over ctypes for both, so that neither a binding nor the runtime API stands between.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from gpupool.client.native import native_directory

from tests.support.pool_node import native_worker_is_built
from tests.support.runtime_share import Share, share

__all__ = ["share"]  # the fixture

pytestmark = pytest.mark.skipif(not native_worker_is_built(), reason="native parts not built")

Run = Callable[[str], tuple[str, str]]

#: `cu("cuInit", 0)` is the result of a call; `call` wants success; `told()` is what the error log says since the last time.
OPENING = r"""
import ctypes, os, sys, tempfile
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
library = ctypes.CDLL("libcuda.so.1")
place = c_uint()

def cu(name, *arguments):
    return getattr(library, name)(*arguments)

def call(name, *arguments):
    result = cu(name, *arguments)
    assert result == 0, (name, result)

def told():
    text, size = ctypes.create_string_buffer(8192), c_size_t(8192)
    call("cuLogsDumpToMemory", byref(place), text, byref(size), 0)
    return text.value.decode()

def start():
    context = c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", byref(context), 0)
    call("cuCtxSetCurrent", context)
    call("cuLogsCurrent", byref(place), 0)
    return context

def sentence(code):
    text = c_char_p()
    call("cuGetErrorString", code, byref(text))
    return text.value.decode()

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
SAXPY = HEADER + '''.visible .entry k(.param .u64 out, .param .u32 value)
{
    .reg .b64 %rd<2>; .reg .b32 %r<2>;
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [value];
    st.global.u32 [%rd1], %r1;
    ret;
}
'''

def kernel():
    module, function = c_void_p(), c_void_p()
    call("cuModuleLoadData", byref(module), SAXPY.encode())
    call("cuModuleGetFunction", byref(function), module, b"k")
    return function
"""


def without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("GPUPOOL_", "CUDA_"))}


@pytest.fixture(params=["alone", "through a worker"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a program both ways; it prints what the test looks at. Gives standard output and standard error."""
    shared: Share | None = None if request.param == "alone" else request.getfixturevalue("share")

    def one(program: str) -> tuple[str, str]:
        text = OPENING + textwrap.dedent(program) + '\nprint("ok")\n'
        if shared is not None:
            process = shared.start(text, "")
            out, errors = process.communicate(timeout=120)
            code = process.returncode
        else:
            done = subprocess.run(
                [sys.executable, "-c", text],
                env=without_settings() | {"LD_LIBRARY_PATH": str(native_directory() / "softgpu")},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            out, errors, code = done.stdout, done.stderr, done.returncode
        assert code == 0, out + errors
        assert out.endswith("ok\n"), out + errors
        return out, errors

    return one


def test_an_image_that_does_not_load_says_why(run: Run) -> None:
    _, errors = run(
        r"""
        start()
        assert sentence(218) == "a PTX JIT compilation failed", sentence(218)
        assert sentence(209) == "no kernel image is available for execution on the device", sentence(209)
        assert sentence(1) == "invalid argument"
        module = c_void_p()
        for text, why in (
            (".entry k() { frobnicate.b32 1; ret; }", "frobnicate"),
            (".entry k() { ret }", "line 4"),
            (".extern .func (.param .b32 r) cudaLaunchDeviceV2(.param .b64 a, .param .b64 s);\n.entry k() { { .param .b64 a;"
             " .param .b64 s; .param .b32 r; call (r), cudaLaunchDeviceV2, (a, s); } ret; }", "dynamic parallelism"),
        ):
            assert cu("cuModuleLoadData", byref(module), (HEADER + text).encode()) == 218
            said = told()
            assert "a PTX JIT compilation failed: " in said and why in said, said
        code = bytearray(4096)
        code[:20] = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xbe\x00"
        code[52:54] = b"\x40\x00"  # e_ehsize
        code = (ctypes.c_char * len(code)).from_buffer(code)
        size = c_uint64(512)
        log = ctypes.create_string_buffer(b"#" * 511, 512)
        options = (c_int * 2)(5, 6)
        values = (c_void_p * 2)(ctypes.addressof(log), 512)
        result = cu("cuModuleLoadDataEx", byref(module), code, 2, options, values)
        assert result in (200, 209), result
        if result == 209:
            said = told()
            assert "holds only machine code" in said, said
            assert values[1] == len(log.value) and b"machine code" in log.value, (values[1], log.value)
        """
    )
    for why in ("frobnicate", "line 4", "dynamic parallelism"):
        assert why in errors


def test_what_cannot_be_captured_ends_the_capture(run: Run) -> None:
    run(
        """
        context = start()
        stream, graph = c_void_p(), c_void_p()
        call("cuStreamCreate", byref(stream), 1)
        for mode in (0, 1, 2):
            for name, arguments in (
                ("cuStreamSynchronize", (stream,)),
                ("cuStreamQuery", (stream,)),
                ("cuCtxSynchronize", ()),
                ("cuCtxSynchronize_v2", (context,)),
            ):
                call("cuStreamBeginCapture_v2", stream, mode)
                assert cu(name, *arguments) == 900, name
                assert cu("cuStreamEndCapture", stream, byref(graph)) == 901, name
                assert not graph.value
                call("cuCtxSynchronize")
        # Memory that is given back meanwhile, as allocators do, ends nothing.
        memory = c_uint64()
        call("cuMemAlloc_v2", byref(memory), 1 << 22)
        call("cuMemsetD32_v2", memory, 1, 16)
        call("cuStreamBeginCapture_v2", stream, 2)
        call("cuMemFree_v2", memory)
        call("cuStreamEndCapture", stream, byref(graph))
        assert graph.value
        """
    )


def test_answers_to_arguments_that_are_wrong(run: Run) -> None:
    run(
        """
        assert cu("cuCtxPushCurrent_v2", c_void_p(8)) == 3
        assert cu("cuProfilerStart") == 3 and cu("cuProfilerStop") == 3
        start()
        graph, first, second, out = c_void_p(), c_void_p(), c_void_p(), c_void_p()
        call("cuGraphCreate", byref(graph), 0)
        call("cuGraphAddEmptyNode", byref(first), graph, None, 0)
        call("cuGraphAddEmptyNode", byref(second), graph, byref(first), 1)
        none = c_size_t(0)
        assert cu("cuGraphGetNodes", graph, byref(out), byref(none)) == 1
        assert cu("cuGraphGetRootNodes", graph, byref(out), byref(none)) == 1
        assert cu("cuGraphNodeGetDependencies_v2", second, byref(out), None, byref(none)) == 1
        assert cu("cuGraphNodeGetDependentNodes_v2", first, byref(out), None, byref(none)) == 1
        call("cuGraphGetNodes", graph, None, byref(none))
        assert none.value == 2
        memory, value = c_uint64(), c_uint()
        call("cuMemAlloc_v2", byref(memory), 4096)
        assert cu("cuPointerGetAttribute", byref(value), 9999, memory) == 1
        assert cu("cuDeviceGetP2PAttribute", byref(value), 9999, 0, 0) == 101
        image, wall = c_void_p(), (c_void_p * 1)(77)
        preserved = (c_int * 1)(1)
        call("cuLibraryLoadData", byref(image), SAXPY.encode(), (c_int * 1)(2), wall, 1, preserved, None, 1)
        assert wall[0] != 77
        state = c_void_p()
        call("cuLinkCreate_v2", 0, None, None, byref(state))
        assert cu("cuLinkAddFile_v2", state, 1, os.devnull.encode(), 0, None, None) in (200, 301)
        with tempfile.NamedTemporaryFile(suffix=".ptx") as empty:
            assert cu("cuLinkAddFile_v2", state, 1, empty.name.encode(), 0, None, None) == 200
        pool = c_void_p()
        call("cuDeviceGetDefaultMemPool", byref(pool), 0)
        reserved, some = c_uint64(), c_uint64()
        call("cuMemAllocAsync", byref(some), 1000, None)
        call("cuMemPoolGetAttribute", pool, 5, byref(reserved))
        assert reserved.value == 32 << 20, reserved.value
        """
    )


def test_the_launches_of_cuda_3(run: Run) -> None:
    run(
        """
        start()
        function, memory, out = kernel(), c_uint64(), c_uint()
        call("cuMemAlloc_v2", byref(memory), 4)
        call("cuFuncSetBlockShape", function, 1, 1, 1)
        call("cuFuncSetSharedSize", function, 0)
        call("cuParamSetv", function, 0, byref(memory), 8)
        call("cuParamSeti", function, 8, 42)
        call("cuParamSetSize", function, 12)
        assert cu("cuParamSeti", function, -4, 42) == 1
        call("cuLaunchGrid", function, 2, 1)
        call("cuMemcpyDtoH_v2", byref(out), memory, 4)
        assert out.value == 42
        call("cuParamSeti", function, 8, 43)
        call("cuLaunchGridAsync", function, 1, 2, None)
        call("cuMemcpyDtoH_v2", byref(out), memory, 4)
        assert out.value == 43
        """
    )


def test_parameters_that_a_node_gave_are_set_again(run: Run) -> None:
    run(
        """
        class Params(ctypes.Structure):
            _fields_ = [("func", c_void_p), ("shape", c_uint * 7), ("params", c_void_p), ("extra", c_void_p),
                        ("kern", c_void_p), ("ctx", c_void_p)]
        start()
        function, memory, out, step = kernel(), c_uint64(), c_uint(), c_uint(7)
        call("cuMemAlloc_v2", byref(memory), 4)
        arguments = (c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(step))
        given = Params(func=function, shape=(c_uint * 7)(1, 1, 1, 1, 1, 1, 0), params=ctypes.addressof(arguments))
        graph, node, run = c_void_p(), c_void_p(), c_void_p()
        call("cuGraphCreate", byref(graph), 0)
        call("cuGraphAddKernelNode_v2", byref(node), graph, None, 0, byref(given))
        call("cuGraphInstantiateWithFlags", byref(run), graph, c_uint64(0))
        own = Params()
        call("cuGraphKernelNodeGetParams_v2", node, byref(own))
        call("cuGraphKernelNodeSetParams_v2", node, byref(own))
        call("cuGraphExecKernelNodeSetParams_v2", run, node, byref(own))
        call("cuGraphLaunch", run, None)
        call("cuMemcpyDtoH_v2", byref(out), memory, 4)
        assert out.value == 7
        """
    )


def test_device_addresses_go_where_the_process_has_nothing(run: Run) -> None:
    """What AddressSanitizer's heap and allocators with places of their own do."""
    run(
        """
        c = ctypes.CDLL(None)
        c.mmap.restype = c_void_p
        c.mmap.argtypes = [c_void_p, c_size_t, c_int, c_int, c_int, c_size_t]
        begin = 0x600000000000
        taken = c.mmap(begin + (1 << 30), 1 << 20, 3, 0x22 | 0x100000, -1, 0)
        assert taken == begin + (1 << 30)
        start()
        memory, out = c_uint64(), c_uint()
        call("cuMemAlloc_v2", byref(memory), 4096)
        call("cuMemsetD32_v2", memory, 9, 1024)
        call("cuMemcpyDtoH_v2", byref(out), memory, 4)
        assert out.value == 9
        """
    )


LINKED = """
int cuInit(unsigned);
int cuDeviceGetCount(int *);
int main(void) { int n = 0; return cuInit(0) || cuDeviceGetCount(&n) || n == 0; }
"""
BOTH_NAMES = """
import ctypes
both = [ctypes.CDLL(name) for name in ("libcuda.so", "libcuda.so.1")]
print(len({ctypes.cast(one.cuInit, ctypes.c_void_p).value for one in both}), both[0].cuInit(0))
"""


def test_a_program_links_with_lcuda(tmp_path: Path) -> None:
    folder = native_directory() / "softgpu"
    program = tmp_path / "linked"
    subprocess.run(
        ["cc", "-x", "c", "-", "-o", program, f"-L{folder}", "-lcuda"], input=LINKED, text=True, check=True
    )
    environment = without_settings() | {"LD_LIBRARY_PATH": str(folder)}
    subprocess.run([program], env=environment, check=True, timeout=60)
    needed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    assert "[libcuda.so.1]" in needed
    # And whoever opens that name has the library itself.
    done = subprocess.run(
        [sys.executable, "-c", BOTH_NAMES],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "1 0\n"
