// The calls that make communicators, end them and ask about them, and groups.
#include <algorithm>
#include <bit>
#include <cstring>

#include "libraries/nccl/call.h"
#include "libraries/nccl/context.h"
#include "libraries/nccl/split.h"

using namespace gpupool::nccl;

namespace {

struct RawId {
  char bytes[128];
};

/// What ncclConfig_t begins with in all of its versions.
struct Config {
  std::size_t size;
  unsigned magic;
  unsigned version;
};
constexpr unsigned config_magic = 0xcafe'beef;

// Named as NCCL names them, behind its prefix. NOLINTBEGIN(readability-identifier-naming)
int GetUniqueId(RawId* id) {
  return guarded([&] {
    require(id != nullptr, "there is nowhere to put the unique id");
    *id = std::bit_cast<RawId>(unique_id());
  });
}

/// Every setting of a configuration is about how NCCL uses a GPU, or lets a call return earlier.
int CommInitRankConfig(void** communicator, int ranks, RawId raw, int rank, const Config* config) {
  return guarded([&] {
    require(communicator != nullptr, "there is nowhere to put the communicator");
    require(ranks >= 1 && ranks <= most_ranks, "so many ranks are not possible");
    require(rank >= 0 && rank < ranks, "there is no such rank");
    require(config == nullptr || config->magic == config_magic, "the configuration was not initialised");
    CUcontext context = nullptr;
    require_driver(driver().cuCtxGetCurrent(&context), "the current context");
    submit([=] {
      const InContext inside(context);
      *communicator = handle_of(make_communicator(std::bit_cast<UniqueId>(raw), rank, ranks));
    });
  });
}

int CommInitRank(void** communicator, int ranks, RawId raw, int rank) {
  return CommInitRankConfig(communicator, ranks, raw, rank, nullptr);
}

int CommInitAll(void** communicators, int ranks, const int* devices) {
  return guarded([&] {
    require(communicators != nullptr, "there is nowhere to put the communicators");
    int there = 0;
    require_driver(driver().cuDeviceGetCount(&there), "the number of devices");
    require(ranks >= 1 && ranks <= there, "there are not so many devices");
    std::vector<CUcontext> contexts;
    std::vector<int> seen;
    for (int rank = 0; rank < ranks; ++rank) {
      const int number = devices != nullptr ? devices[rank] : rank;
      require(number >= 0 && number < there, "there is no such device");
      require(std::find(seen.begin(), seen.end(), number) == seen.end(), "a device stands there twice",
              invalid_usage);
      seen.push_back(number);
      CUdevice one = 0;
      require_driver(driver().cuDeviceGet(&one, number), "a device");
      require_driver(driver().cuDevicePrimaryCtxRetain(&contexts.emplace_back(), one), "a context");
    }
    const UniqueId id = unique_id();
    start_group();
    for (int rank = 0; rank < ranks; ++rank) {
      void** const place = communicators + rank;
      const CUcontext context = contexts[static_cast<std::size_t>(rank)];
      submit([=] {
        const InContext inside(context);
        *place = handle_of(make_communicator(id, rank, ranks));
      });
    }
    end_group();
  });
}

int CommSplit(void* handle, int color, int key, void** made, const Config* config) {
  return guarded([&] {
    const auto parent = communicator_of(handle);
    parent->require_working();
    require(made != nullptr, "there is nowhere to put the communicator");
    require(color >= 0 || color == no_color, "a color is negative");
    require(config == nullptr || config->magic == config_magic, "the configuration was not initialised");
    submit(
        [=] {
          const auto part = split(*parent, color, key);
          *made = part == nullptr ? nullptr : handle_of(part);
        },
        parent);
  });
}

int RedOpCreatePreMulSum(int* operation, const void* factor, int type, int residence, void* handle) {
  return guarded([&] {
    const auto communicator = communicator_of(handle);
    communicator->require_working();
    require(operation != nullptr, "there is nowhere to put the reduction");
    require(factor != nullptr, "there is no factor");
    require(type >= 0 && type < types && reduces(static_cast<Type>(type)),
            "there are no factors of that type");
    constexpr int on_device = 0, on_host = 1;  // ncclScalarResidence_t
    require(residence == on_device || residence == on_host, "a factor is neither on the device nor here");
    Factor made;
    made.type = static_cast<Type>(type);
    if (residence == on_device) {
      made.on_device = reinterpret_cast<CUdeviceptr>(factor);
    } else {
      std::memcpy(made.value.data(), factor, size_of(made.type));
    }
    *operation = communicator->factors.add(made);
  });
}
int RedOpDestroy(int operation, void* handle) {
  return guarded([&] {
    require(communicator_of(handle)->factors.remove(operation),
            "there is no such reduction of the program's");
  });
}

int CommFinalize(void* handle) {
  return guarded([&] { communicator_of(handle)->require_working(); });
}

int CommDestroy(void* handle) {
  return guarded([&] {
    if (handle == nullptr) return;
    const auto communicator = communicator_of(handle);
    const std::lock_guard lock(communicator->busy);  // what another thread does with it comes first
    forget(handle);
  });
}

int CommAbort(void* handle) {
  return guarded([&] {
    if (handle == nullptr) return;
    const auto communicator = communicator_of(handle);
    communicator->stop = true;
    const std::lock_guard lock(communicator->busy);
    communicator->end(invalid_usage);
    forget(handle);
  });
}

int CommGetAsyncError(void* handle, int* error) {
  return guarded([&] {
    require(error != nullptr, "there is nowhere to put the error");
    const auto communicator = communicator_of(handle);
    // While it exchanges, the exchange finds out for itself.
    const std::unique_lock lock(communicator->busy, std::try_to_lock);
    if (lock && communicator->error == success) {
      try {
        communicator->mesh->move();
        if (communicator->mesh->has_lost_one()) communicator->end(remote_error);
      } catch (const Failure& failure) {
        communicator->end(failure.result);
      }
    }
    *error = communicator->error;
  });
}

template <class Member>
int read_number(const void* handle, int* value, Member member) {
  return guarded([&] {
    require(value != nullptr, "there is nowhere to put the number");
    *value = communicator_of(handle).get()->*member;
  });
}

int CommCount(const void* handle, int* count) {
  return read_number(handle, count, &Communicator::ranks);
}
int CommUserRank(const void* handle, int* rank) {
  return read_number(handle, rank, &Communicator::rank);
}
int CommCuDevice(const void* handle, int* number) {
  return read_number(handle, number, &Communicator::device);
}

int GroupStart() {
  start_group();
  return success;
}
int GroupEnd() {
  return guarded([] { end_group(); });
}

/// Memory is memory: communication goes through the host, so that none is better than another.
int MemAlloc(void** memory, std::size_t size) {
  return guarded([&] {
    require(memory != nullptr, "there is nowhere to put the memory");
    CUdeviceptr made = 0;
    if (size != 0) require_driver(driver().cuMemAlloc_v2(&made, size), "memory");
    *memory = reinterpret_cast<void*>(made);
  });
}
int MemFree(void* memory) {
  return guarded([&] {
    if (memory == nullptr) return;
    require_driver(driver().cuMemFree_v2(reinterpret_cast<CUdeviceptr>(memory)), "memory");
  });
}

int CommRegister(const void* handle, void* memory, std::size_t, void** registration) {
  return guarded([&] {
    static_cast<void>(communicator_of(handle));
    require(registration != nullptr, "there is nowhere to put the registration");
    *registration = memory;
  });
}
int CommDeregister(const void* handle, void*) {
  return guarded([&] { static_cast<void>(communicator_of(handle)); });
}
// NOLINTEND(readability-identifier-naming)

}  // namespace

GPUPOOL_NCCL_CALL(GetUniqueId, (RawId * id), (id))
GPUPOOL_NCCL_CALL(CommInitRankConfig, (void** c, int ranks, RawId id, int rank, const Config* config),
                  (c, ranks, id, rank, config))
GPUPOOL_NCCL_CALL(CommInitRank, (void** c, int ranks, RawId id, int rank), (c, ranks, id, rank))
GPUPOOL_NCCL_CALL(CommInitAll, (void** c, int ranks, const int* devices), (c, ranks, devices))
GPUPOOL_NCCL_CALL(CommSplit, (void* c, int color, int key, void** made, const Config* config),
                  (c, color, key, made, config))
GPUPOOL_NCCL_CALL(RedOpCreatePreMulSum,
                  (int* operation, const void* factor, int type, int residence, void* c),
                  (operation, factor, type, residence, c))
GPUPOOL_NCCL_CALL(RedOpDestroy, (int operation, void* c), (operation, c))
GPUPOOL_NCCL_CALL(CommFinalize, (void* c), (c))
GPUPOOL_NCCL_CALL(CommDestroy, (void* c), (c))
GPUPOOL_NCCL_CALL(CommAbort, (void* c), (c))
GPUPOOL_NCCL_CALL(CommGetAsyncError, (void* c, int* error), (c, error))
GPUPOOL_NCCL_CALL(CommCount, (const void* c, int* count), (c, count))
GPUPOOL_NCCL_CALL(CommUserRank, (const void* c, int* rank), (c, rank))
GPUPOOL_NCCL_CALL(CommCuDevice, (const void* c, int* number), (c, number))
GPUPOOL_NCCL_CALL(CommRegister, (const void* c, void* memory, std::size_t size, void** registration),
                  (c, memory, size, registration))
GPUPOOL_NCCL_CALL(CommDeregister, (const void* c, void* registration), (c, registration))
GPUPOOL_NCCL_CALL(MemAlloc, (void** memory, std::size_t size), (memory, size))
GPUPOOL_NCCL_CALL(MemFree, (void* memory), (memory))
GPUPOOL_NCCL_CALL(GroupStart, (), ())
GPUPOOL_NCCL_CALL(GroupEnd, (), ())
