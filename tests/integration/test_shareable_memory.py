"""Physical memory and memory pools that one process gives another by a file descriptor, as with NVIDIA's driver."""

from __future__ import annotations

from pathlib import Path

from gpupool.client.native import native_directory

from tests.support.process_pair import BEGIN, Program, Run, giver, run, taker
from tests.support.runtime_share import Share

__all__ = ["giver", "run", "taker"]  # the fixtures

DESCRIPTORS = (
    BEGIN
    + """
import socket
GRANULE = 2 << 20
FILE = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
NO_FILE = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
DEVICE = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE

def give(descriptor):
    there = socket.socket(socket.AF_UNIX)
    there.connect(hear())
    socket.send_fds(there, [b"x"], [int(descriptor)])
    os.close(int(descriptor))                     # the other process has its own by now

def take(path):
    here = socket.socket(socket.AF_UNIX)
    here.bind(path)
    here.listen()
    here.settimeout(60)
    say(path)
    (descriptor,) = socket.recv_fds(here.accept()[0], 1, 1)[1]
    return descriptor

def properties(kind=FILE):
    made = cu.CUmemAllocationProp()
    made.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    made.location.type = DEVICE
    made.requestedHandleTypes = kind
    return made

def mapped(handle, size=GRANULE):
    address = int(check(cu.cuMemAddressReserve(size, 0, 0, 0)))
    check(cu.cuMemMap(address, size, 0, handle, 0))
    access = cu.CUmemAccessDesc()
    access.location.type = DEVICE
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    check(cu.cuMemSetAccess(address, size, [access], 1))
    return address

def pool_properties(kind=FILE):
    made = cu.CUmemPoolProps()
    made.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    made.location.type = DEVICE
    made.handleTypes = kind
    return made
"""
)


def start(share: Share, run: Run, program: str) -> Program:
    return run(share, DESCRIPTORS.removeprefix(BEGIN) + program)


def pass_descriptor(first: Program, second: Program) -> None:
    first.say(second.hear())


def test_physical_memory_goes_to_another_process_by_a_descriptor(
    giver: Share,
    taker: Share,
    run: Run,
    tmp_path: Path,
) -> None:
    first = start(
        giver,
        run,
        """
able = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
assert check(cu.cuDeviceGetAttribute(able, 0)) == 1
plain = check(cu.cuMemCreate(GRANULE, properties(NO_FILE), 0))
fails(cu.cuMemExportToShareableHandle(plain, FILE, 0), "INVALID_VALUE")
memory = check(cu.cuMemCreate(2 * GRANULE, properties(), 0))
address = mapped(memory, 2 * GRANULE)
count = 2 * GRANULE // 8
array_at(address, count)[:] = 5
descriptor = check(cu.cuMemExportToShareableHandle(memory, FILE, 0))
free = free_memory()
own = check(cu.cuMemImportFromShareableHandle(int(descriptor), FILE))   # also in the same process
second = mapped(own, 2 * GRANULE)
assert array_at(second, count)[3] == 5
assert free_memory() == free                              # it is the same memory
check(cu.cuMemUnmap(second, 2 * GRANULE)); check(cu.cuMemRelease(own))
give(descriptor)
assert hear() == "computed"
assert array_at(address, count)[7] == 6
free = free_memory()
check(cu.cuMemUnmap(address, 2 * GRANULE)); check(cu.cuMemRelease(memory))
cuda.synchronize()
assert free_memory() == free + 2 * GRANULE
say("given up")
hear()
say("ok")
""",
    )
    second = start(
        taker,
        run,
        f"""
before = free_memory()
pipe = os.pipe()[0]
fails(cu.cuMemImportFromShareableHandle(pipe, FILE), "INVALID_VALUE")
forged = os.memfd_create("gpupool-memory-ticket", os.MFD_ALLOW_SEALING)
os.write(forged, b"GPTK" + bytes(60))
fails(cu.cuMemImportFromShareableHandle(forged, FILE), "INVALID_VALUE")  # not sealed
import fcntl
fcntl.fcntl(forged, 1033, 15)
fails(cu.cuMemImportFromShareableHandle(forged, FILE), "INVALID_HANDLE")
descriptor = take({str(tmp_path / "s")!r})
memory = check(cu.cuMemImportFromShareableHandle(descriptor, FILE))
known = check(cu.cuMemGetAllocationPropertiesFromHandle(memory))
assert known.location.id == 0 and known.requestedHandleTypes == FILE
address = mapped(memory, 2 * GRANULE)
assert before - free_memory() == 2 * GRANULE
count = 2 * GRANULE // 8
raise_by[(count + 255) // 256, 256](array_at(address, count), 1)
cuda.synchronize()
say("computed")
assert hear() == "given up"
assert (array_at(address, count).copy_to_host() == 6).all()             # this process still has it
fails(cu.cuMemImportFromShareableHandle(descriptor, FILE), "INVALID_HANDLE")
check(cu.cuMemUnmap(address, 2 * GRANULE)); check(cu.cuMemRelease(memory))
cuda.synchronize()
assert 0 <= before - free_memory() < 4096  # the kernel's own variables
say("ok")
""",
    )
    pass_descriptor(first, second)
    first.say(second.hear())
    second.say(first.hear())
    second.ends_well()
    first.say()
    first.ends_well()


def test_a_pool_and_its_memory_go_to_another_process(
    giver: Share,
    taker: Share,
    run: Run,
    tmp_path: Path,
) -> None:
    first = start(
        giver,
        run,
        """
kinds = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES
assert check(cu.cuDeviceGetAttribute(kinds, 0)) == int(FILE)
default = check(cu.cuDeviceGetDefaultMemPool(0))
fails(cu.cuMemPoolExportToShareableHandle(default, FILE, 0), "INVALID_VALUE")
pool = check(cu.cuMemPoolCreate(pool_properties()))
other = check(cu.cuMemPoolCreate(pool_properties()))
give(check(cu.cuMemPoolExportToShareableHandle(pool, FILE, 0)))
plain = check(cu.cuMemAllocAsync(800, 0))
fails(cu.cuMemPoolExportPointer(plain), "INVALID_VALUE")
data = np.arange(100)
blocks = []
for which in (pool, other):
    blocks.append(check(cu.cuMemAllocFromPoolAsync(800, which, 0)))
    check(cu.cuMemcpyHtoD(blocks[-1], data.ctypes.data, 800))
    say(text_of(check(cu.cuMemPoolExportPointer(blocks[-1]))))
fails(cu.cuIpcGetMemHandle(blocks[0]), "INVALID_VALUE")
hear()
np.testing.assert_array_equal(download(blocks[0], data), data + 1)
check(cu.cuMemFreeAsync(blocks[0], 0))
check(cu.cuMemPoolDestroy(pool))
cuda.synchronize()
say("freed")
hear()
say("ok")
""",
    )
    second = start(
        taker,
        run,
        f"""
descriptor = take({str(tmp_path / "s")!r})
pool = check(cu.cuMemPoolImportFromShareableHandle(descriptor, FILE, 0))
fails(cu.cuMemAllocFromPoolAsync(800, pool, 0), "INVALID_VALUE")          # it only takes in
fails(cu.cuMemPoolExportToShareableHandle(pool, FILE, 0), "INVALID_VALUE")
def data_of(text):
    return filled(cu.CUmemPoolPtrExportData(), text)
good, of_other_pool = data_of(hear()), data_of(hear())
before = free_memory()
fails(cu.cuMemPoolImportPointer(pool, of_other_pool), "INVALID_VALUE")
mine = check(cu.cuMemPoolCreate(pool_properties()))
fails(cu.cuMemPoolImportPointer(mine, good), "INVALID_VALUE")
assert 0 <= before - free_memory() < 4096
block = check(cu.cuMemPoolImportPointer(pool, good))
about = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE
assert int(check(cu.cuPointerGetAttribute(about, block))) == int(pool)
raise_by[1, 128](array_at(block, 100), 1)
fails(cu.cuIpcCloseMemHandle(block), "INVALID_VALUE")
cuda.synchronize()
say("computed")
hear()
np.testing.assert_array_equal(download(block, np.arange(100)), np.arange(100) + 1)
check(cu.cuMemFreeAsync(block, 0))
cuda.synchronize()
assert 0 <= before - free_memory() < 4096
fails(cu.cuMemPoolImportPointer(pool, good), "INVALID_HANDLE")
fails(cu.cuMemPoolImportFromShareableHandle(descriptor, FILE, 0), "INVALID_HANDLE")
check(cu.cuMemPoolDestroy(pool))
say("ok")
""",
    )
    pass_descriptor(first, second)
    second.say(first.hear())
    second.say(first.hear())
    first.say(second.hear())
    second.say(first.hear())
    second.ends_well()
    first.say()
    first.ends_well()


RUNTIME = f"""
cudart = ctypes.CDLL({str(native_directory() / "cudart" / "libcudart.so.13")!r})
class Bytes(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]
def call(name, *arguments):
    result = getattr(cudart, name)(*arguments)
    assert result == 0, (name, result)
def raw(it):
    return ctypes.string_at(ctypes.addressof(it), 64)
def bytes_of(text):
    it = Bytes()
    ctypes.memmove(ctypes.addressof(it), bytes.fromhex(text), 64)
    return it
"""


def test_the_runtime_api_does_the_same(
    giver: Share,
    taker: Share,
    run: Run,
) -> None:
    first = run(
        giver,
        RUNTIME
        + """
block, event, handle = ctypes.c_void_p(), ctypes.c_void_p(), Bytes()
call("cudaMalloc", ctypes.byref(block), ctypes.c_size_t(800))
data = np.arange(100)
call("cudaMemcpy", block, ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(800), 1)
call("cudaIpcGetMemHandle", ctypes.byref(handle), block)
say(raw(handle).hex())
call("cudaEventCreateWithFlags", ctypes.byref(event), 6)
call("cudaIpcGetEventHandle", ctypes.byref(handle), event)
call("cudaEventRecord", event, None)
say(raw(handle).hex())
hear()
say("ok")
""",
    )
    second = run(
        taker,
        RUNTIME
        + """
memory, marked = bytes_of(hear()), bytes_of(hear())
block, event = ctypes.c_void_p(), ctypes.c_void_p()
call("cudaIpcOpenMemHandle", ctypes.byref(block), memory, 1)
call("cudaIpcOpenEventHandle", ctypes.byref(event), marked)
call("cudaStreamWaitEvent", None, event, 0)
call("cudaEventSynchronize", event)
seen = np.zeros(100, dtype=np.int64)
call("cudaMemcpy", ctypes.c_void_p(seen.ctypes.data), block, ctypes.c_size_t(800), 2)
np.testing.assert_array_equal(seen, np.arange(100))
call("cudaIpcCloseMemHandle", block)
call("cudaEventDestroy", event)
assert cudart.cudaIpcCloseMemHandle(block) == 1
say("ok")
""",
    )
    second.say(first.hear())
    second.say(first.hear())
    second.ends_well()
    first.say()
    first.ends_well()
