"""Every way in which a program takes device memory: functions of a number of MiB, for programs of `runtime_share`."""

WAYS = r"""
MIB = 1 << 20
start()
out_of_memory = cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
stream = check(cu.cuStreamCreate(0))

def module(variable_mib):
    head = b".version 7.0\n.target sm_75\n.address_size 64\n.visible .global .align 4 .b8 big[%d];\n" % (variable_mib * MIB)
    return head + b".visible .entry touch(.param .u64 p) { .reg .b64 %rd<2>; mov.u64 %rd1, big; st.global.u8 [%rd1], 1; ret; }\n"

def plain(mib):
    return cu.cuMemAlloc(mib * MIB)

def asynchronous(mib):
    return cu.cuMemAllocAsync(mib * MIB, stream)

def pool(mib):
    properties = cu.CUmemPoolProps()
    properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return cu.cuMemAllocFromPoolAsync(mib * MIB, check(cu.cuMemPoolCreate(properties)), stream)

def virtual(mib):
    properties = cu.CUmemAllocationProp()
    properties.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    return cu.cuMemCreate((mib + 1) // 2 * 2 * MIB, properties, 0)  # whole granules

def array(mib):
    shape = cu.CUDA_ARRAY3D_DESCRIPTOR()
    shape.Width, shape.Height, shape.Depth, shape.NumChannels = 1024, 1024, mib, 1
    shape.Format = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
    return cu.cuArray3DCreate(shape)

def managed(mib):
    return cu.cuMemAllocManaged(mib * MIB, 1)

def mapped(mib):
    return cu.cuMemHostAlloc(mib * MIB, cu.CU_MEMHOSTALLOC_DEVICEMAP)

def loaded(mib):
    return cu.cuModuleLoadData(module(mib))

def library(mib):
    return cu.cuLibraryLoadData(module(mib), [], [], 0, [], [], 0)

def graph(mib):
    made = check(cu.cuGraphCreate(0))
    node = cu.CUDA_MEM_ALLOC_NODE_PARAMS()
    node.poolProps.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    node.poolProps.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    node.bytesize = mib * MIB
    answer = cu.cuGraphAddMemAllocNode(made, None, 0, node)
    return answer if answer[0] != 0 else cu.cuGraphInstantiate(made, 0)

def heap(mib):
    usual = check(cu.cuCtxGetLimit(cu.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE))
    answer = cu.cuCtxSetLimit(cu.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE, usual + mib * MIB)
    return answer[0], 0

def room():
    return check(cu.cuMemGetInfo())[0] // MIB
"""
