"""What programs of graphs begin with: kernels that add and loop, a few words of device memory, and how nodes are made."""

from __future__ import annotations

from tests.support.runtime_share import PRELUDE

GRAPHS = (
    PRELUDE
    + '''
PTX = b"""
.version 8.0
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry add(.param .u64 word, .param .u32 step)
{
    .reg .b32 %r<3>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [word]; ld.param.u32 %r2, [step];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry count_until(.param .u64 word, .param .u32 bound, .param .u64 handle)
{
    .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [word]; ld.param.u32 %r2, [bound]; ld.param.u64 %rd2, [handle];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%rd1], %r1;
    setp.lt.u32 %p1, %r1, %r2;
    selp.u32 %r3, 1, 0, %p1;
    {
    .param .b64 a; .param .b32 b;
    st.param.b64 [a], %rd2; st.param.b32 [b], %r3;
    call.uni cudaGraphSetConditional, (a, b);
    }
    ret;
}
\\0"""
Type = cu.CUgraphNodeType
Error = cu.CUresult
start()
module = check(cu.cuModuleLoadData(PTX))
add = check(cu.cuModuleGetFunction(module, b"add"))
context = check(cu.cuCtxGetCurrent())
words = check(cu.cuMemAlloc(64))
word = int(words)

def clear():
    check(cu.cuMemsetD32(words, 0, 16))

def read(n=0):
    out = np.zeros(1, np.uint32)
    check(cu.cuMemcpyDtoH(out.ctypes.data, word + 4 * n, 4))
    return int(out[0])

def kernel_params(address, step, function=add):
    params = cu.CUDA_KERNEL_NODE_PARAMS()
    params.func = function
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX = params.blockDimY = params.blockDimZ = 1
    params.kernelParams = ((address, step), (ctypes.c_uint64, ctypes.c_uint32))
    return params

def kernel(graph, after, address, step):
    return check(cu.cuGraphAddKernelNode(graph, after, len(after), kernel_params(address, step)))

def values(params):
    pointers = ctypes.cast(int(params.kernelParams), ctypes.POINTER(ctypes.c_void_p))
    return (ctypes.cast(pointers[0], ctypes.POINTER(ctypes.c_uint64))[0],
            ctypes.cast(pointers[1], ctypes.POINTER(ctypes.c_uint32))[0])

def launch(graph_exec, stream=0, times=1):
    for _ in range(times):
        check(cu.cuGraphLaunch(graph_exec, stream))
    check(cu.cuCtxSynchronize())

def asks():
    return counters()["asks"]

clear()
'''
)
