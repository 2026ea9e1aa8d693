// Managed memory, and what may be said and asked about ranges of it.
#include <cuda.h>

#include <algorithm>
#include <cstring>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/call/refuse.h"
#include "client/memory/coherent_memory.h"
#include "client/memory/device_memory.h"
#include "generated/client_api.h"

using namespace gpupool;
using namespace gpupool::client;

#undef cuMemPrefetchAsync
#undef cuMemAdvise

namespace {

Place place_of(int device) {
  return device == CU_DEVICE_CPU ? Place{CU_MEM_LOCATION_TYPE_HOST, 0}
                                 : Place{CU_MEM_LOCATION_TYPE_DEVICE, device};
}

CUresult check(const Place& place) {
  int count = 0;
  if (const CUresult bad = cuDeviceGetCount(&count); bad != CUDA_SUCCESS) return bad;
  switch (place.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return place.id >= 0 && place.id < count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult advise(CUdeviceptr address, std::size_t size, CUmem_advise advice, const Place& place) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  const bool place_matters = advice != CU_MEM_ADVISE_SET_READ_MOSTLY &&
                             advice != CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
                             advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
  if (place_matters) {
    if (const CUresult bad = check(place); bad != CUDA_SUCCESS) return bad;
  }
  const int device = place.type == CU_MEM_LOCATION_TYPE_DEVICE ? place.id : CU_DEVICE_CPU;
  return coherent_memory().with_advice(
      address, size, [&](RangeAdvice& all, std::uint64_t begin, std::uint64_t end) {
        const auto change = [&](auto how) {
          all.change(begin, end, how);
          return CUDA_SUCCESS;
        };
        switch (advice) {
          case CU_MEM_ADVISE_SET_READ_MOSTLY:
            return change([](Advice& part) { part.read_mostly = true; });
          case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
            return change([](Advice& part) { part.read_mostly = false; });
          case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
            return change([&](Advice& part) { part.preferred = place; });
          case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
            return change([](Advice& part) { part.preferred = {}; });
          case CU_MEM_ADVISE_SET_ACCESSED_BY:
            return change([&](Advice& part) { part.accessed_by.insert(device); });
          case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
            return change([&](Advice& part) { part.accessed_by.erase(device); });
          default:
            return CUDA_ERROR_INVALID_VALUE;
        }
      });
}

/// A hint: what the host wrote goes to the device now rather than with the next work. To the host nothing is
/// moved, which would have to wait for the device.
CUresult prefetch(CUdeviceptr address, std::size_t size, const Place& place, CUstream stream) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!known(wire::Kind::stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = check(place); bad != CUDA_SUCCESS) return bad;
  const CUresult result = coherent_memory().with_advice(
      address, size, [&](RangeAdvice& all, std::uint64_t begin, std::uint64_t end) {
        all.change(begin, end, [&](Advice& part) { part.prefetched = place; });
        return CUDA_SUCCESS;
      });
  if (result == CUDA_SUCCESS && place.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
    coherent_memory().flush(worker_of_device(place.id));
  }
  return result;
}

int device_or_none(const Place& place) {
  switch (place.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return place.id;
    case CU_MEM_LOCATION_TYPE_INVALID:
      return CU_DEVICE_INVALID;
    default:
      return CU_DEVICE_CPU;
  }
}

CUresult answer(const Advice& advice, CUmem_range_attribute attribute, void* data, std::size_t size) {
  int value = 0;
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      value = advice.read_mostly ? 1 : 0;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      value = device_or_none(advice.preferred);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      value = device_or_none(advice.prefetched);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      value = static_cast<int>(advice.preferred.type);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      value = advice.preferred.id;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      value = static_cast<int>(advice.prefetched.type);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      value = advice.prefetched.id;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      if (size == 0 || size % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
      auto* const out = static_cast<int*>(data);
      const std::size_t room = size / sizeof(int);
      std::fill_n(out, room, static_cast<int>(CU_DEVICE_INVALID));
      std::size_t n = 0;
      for (const int device : advice.accessed_by) {
        if (n < room) out[n++] = device;
      }
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (size != sizeof(value)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

CUresult get_attributes(void** data, const std::size_t* sizes, const CUmem_range_attribute* attributes,
                        std::size_t count, CUdeviceptr address, std::size_t size) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  Advice advice;
  const CUresult known = coherent_memory().with_advice(
      address, size, [&](RangeAdvice& all, std::uint64_t begin, std::uint64_t end) {
        advice = all.combined(begin, end);
        return CUDA_SUCCESS;
      });
  if (known != CUDA_SUCCESS) return known;
  for (std::size_t n = 0; n < count; ++n) {
    if (data[n] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult bad = answer(advice, attributes[n], data[n], sizes[n]); bad != CUDA_SUCCESS)
      return bad;
  }
  return CUDA_SUCCESS;
}

/// The index of the location that holds for each range: the last one that starts at or before it.
template <class F>
CUresult each_range(CUdeviceptr* ranges, std::size_t* sizes, std::size_t count, CUmemLocation* places,
                    std::size_t* starts, std::size_t place_count, F use) {
  if (ranges == nullptr || sizes == nullptr || count == 0 || places == nullptr || starts == nullptr ||
      place_count == 0 || place_count > count || starts[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t n = 1; n < place_count; ++n) {
    if (starts[n] <= starts[n - 1] || starts[n] >= count) return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t n = 0, at = 0; n < count; ++n) {
    while (at + 1 < place_count && starts[at + 1] <= n) ++at;
    if (const CUresult bad = use(ranges[n], sizes[n], Place{places[at].type, places[at].id});
        bad != CUDA_SUCCESS) {
      return bad;
    }
  }
  return CUDA_SUCCESS;
}

/// The contents of these ranges are no longer wanted: nothing of them has to travel. Keeping them is allowed.
CUresult discard(CUdeviceptr* ranges, std::size_t* sizes, std::size_t count, unsigned long long flags,
                 CUstream stream) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (ranges == nullptr || sizes == nullptr || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!known(wire::Kind::stream, stream)) return CUDA_ERROR_INVALID_HANDLE;
  for (std::size_t n = 0; n < count; ++n) {
    const CUresult bad = coherent_memory().with_advice(
        ranges[n], sizes[n], [](RangeAdvice&, std::uint64_t, std::uint64_t) { return CUDA_SUCCESS; });
    if (bad != CUDA_SUCCESS) return bad;
  }
  return CUDA_SUCCESS;
}

}  // namespace

namespace gpupool::client::api {

CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream);
CUresult cuMemAdvise(CUdeviceptr, size_t, CUmem_advise, CUdevice);

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) try {
  runtime().begin_if_over();
  std::uint64_t context = 0;
  if (const CUresult bad = in_current_context(context); bad != CUDA_SUCCESS) return bad;
  const Context* const object = tables().contexts.find(context);
  if (object == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (dptr == nullptr || bytesize == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = runtime().enter(); bad != CUDA_SUCCESS) return bad;
  return device_memory().allocate_coherent(object->device, bytesize, CoherentMemory::Kind::managed, flags,
                                           context, *dptr);
} catch (const std::bad_alloc&) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Any access of the host waits for the device, whatever the memory is attached to: there is nothing to do
// but to check.
CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags) {
  if (!known(wire::Kind::stream, hStream)) return bad_handle(wire::Kind::stream);
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  const auto found = coherent_memory().find(dptr);
  if (!found || found->kind != CoherentMemory::Kind::managed) return CUDA_ERROR_INVALID_VALUE;
  // Whole allocations only, as CUDA asks.
  const bool whole = dptr == found->base && (length == 0 || length == found->size);
  return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
  return advise(devPtr, count, advice, place_of(device));
}
CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location) {
  return advise(devPtr, count, advice, {location.type, location.id});
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream) {
  return prefetch(devPtr, count, place_of(dstDevice), hStream);
}
CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                               CUstream hStream) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE
                    : prefetch(devPtr, count, {location.type, location.id}, hStream);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count, CUmemLocation* prefetchLocs,
                                 size_t* prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return each_range(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs,
                    [&](CUdeviceptr address, std::size_t size, const Place& place) {
                      return prefetch(address, size, place, hStream);
                    });
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count, unsigned long long flags,
                                CUstream hStream) {
  return discard(dptrs, sizes, count, flags, hStream);
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                           CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream) {
  if (const CUresult bad = discard(dptrs, sizes, count, flags, hStream); bad != CUDA_SUCCESS) return bad;
  return api::cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs,
                                      flags, hStream);
}

// Only for devices that use managed memory while the host does (CONCURRENT_MANAGED_ACCESS), which none here
// is.
CUresult cuMemGetLocationInfo(CUdeviceptr, size_t size, size_t summaryGranularity, size_t samplingGranularity,
                              CUmemLocation* location_out) {
  if (!runtime().initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (location_out == nullptr || summaryGranularity == 0 || summaryGranularity > size ||
      samplingGranularity > summaryGranularity) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
  return get_attributes(&data, &dataSize, &attribute, 1, devPtr, count);
}

CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  return get_attributes(data, dataSizes, attributes, numAttributes, devPtr, count);
}

}  // namespace gpupool::client::api
