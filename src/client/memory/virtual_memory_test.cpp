#include "client/memory/virtual_memory.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "client/memory/arena_allocator.h"

using namespace gpupool::client;

namespace {

constexpr std::uint64_t granule = 2u << 20, base = std::uint64_t{6} << 44;

/// The arena, and what the worker would be told.
class Books final : public VirtualMemoryHost {
 public:
  ArenaAllocator arena{base, std::uint64_t{1} << 40, granule, 16 * granule};
  std::vector<std::string> told;
  std::string without_lease;  ///< fails once, as if the lease had just ended

  std::uint64_t granularity(int device) override { return device == 0 ? granule : 0; }
  std::optional<std::uint64_t> set_aside(int, std::uint64_t size, std::uint64_t aligned,
                                         std::uint64_t wish) override {
    return arena.set_aside(size, aligned, wish);
  }
  void give_back(int, std::uint64_t address, std::uint64_t size) override {
    CHECK(arena.give_back(address, size));
  }
  bool charge(int, std::uint64_t bytes) override {
    std::vector<ArenaAllocator::Range> ranges;
    return arena.charge(bytes, ranges);
  }
  void discharge(int, std::uint64_t bytes) override { arena.discharge(bytes); }
  CUresult create(std::uint64_t, int, std::uint64_t, const CUmemAllocationProp&) override {
    return tell("create");
  }
  ImportedMemory given;
  CUresult import(std::uint64_t, gpupool::ExportKind, std::span<const std::byte>,
                  ImportedMemory& out) override {
    out = given;
    return tell("import");
  }
  CUresult release(std::uint64_t) override { return tell("release"); }
  CUresult map(int, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t) override {
    return tell("map");
  }
  CUresult unmap(int, std::uint64_t, std::uint64_t) override { return tell("unmap"); }
  CUresult set_access(int, std::uint64_t, std::uint64_t, unsigned) override { return tell("access"); }

 private:
  CUresult tell(const char* what) {
    if (without_lease == what) {
      without_lease.clear();
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    told.emplace_back(what);
    return CUDA_SUCCESS;
  }
};

CUmemAllocationProp on_device(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

struct World {
  Books books;
  VirtualMemory memory{books};
  std::uint64_t reserve(std::uint64_t granules) {
    std::uint64_t address = 0;
    REQUIRE(memory.reserve(0, granules * granule, 0, 0, address) == CUDA_SUCCESS);
    return address;
  }
  std::uint64_t create(std::uint64_t granules) {
    std::uint64_t handle = 0;
    REQUIRE(memory.create(granules * granule, on_device(0), handle) == CUDA_SUCCESS);
    return handle;
  }
};

}  // namespace

TEST_CASE("memory stays while it is mapped, although its handle was released") {
  World world;
  const auto address = world.reserve(4), memory = world.create(2);
  REQUIRE(world.memory.map(address, 2 * granule, 0, memory) == CUDA_SUCCESS);
  CHECK(world.memory.release(memory) == CUDA_SUCCESS);
  CHECK(world.books.arena.used() == 2 * granule);
  CHECK(world.memory.map(address + 2 * granule, granule, 0, memory) == CUDA_ERROR_INVALID_VALUE);
  std::uint64_t again = 0;
  REQUIRE(world.memory.retain(address + 5, again) == CUDA_SUCCESS);
  CHECK(again == memory);
  CHECK(world.memory.release(again) == CUDA_SUCCESS);
  CHECK(world.memory.unmap(address, 2 * granule) == CUDA_SUCCESS);
  CHECK(world.books.arena.used() == 0);
  CHECK(world.memory.release(memory) == CUDA_ERROR_INVALID_VALUE);
  CHECK(world.memory.free(address, 4 * granule) == CUDA_SUCCESS);
  CHECK(world.books.told == std::vector<std::string>{"create", "map", "unmap", "release"});
  CHECK(world.books.arena.inconsistency() == nullptr);
}

TEST_CASE("a mapping must lie in one reservation, on free addresses, inside its memory") {
  World world;
  const auto address = world.reserve(4), memory = world.create(4);
  const auto refused = CUDA_ERROR_INVALID_VALUE;
  CHECK(world.memory.map(address + 3 * granule, 2 * granule, 0, memory) == refused);
  CHECK(world.memory.map(address - granule, granule, 0, memory) == refused);
  CHECK(world.memory.map(address, 2 * granule, 3 * granule, memory) == refused);
  CHECK(world.memory.map(address, granule / 2, 0, memory) == refused);
  CHECK(world.memory.map(address, granule, 0, memory + 1) == refused);
  REQUIRE(world.memory.map(address + granule, granule, 3 * granule, memory) == CUDA_SUCCESS);
  CHECK(world.memory.map(address, 2 * granule, 0, memory) == refused);
  CHECK(world.memory.map(address + granule, granule, 0, memory) == refused);
  CHECK(world.memory.free(address, 4 * granule) == refused);  // something is mapped
}

TEST_CASE("access and unmapping take whole mappings, of which there may be several") {
  World world;
  const auto address = world.reserve(4), memory = world.create(2);
  REQUIRE(world.memory.map(address, granule, 0, memory) == CUDA_SUCCESS);
  REQUIRE(world.memory.map(address + granule, granule, granule, memory) == CUDA_SUCCESS);
  const auto both = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(world.memory.set_access(address, 3 * granule, 0, both) == CUDA_ERROR_INVALID_VALUE);
  CHECK(world.memory.set_access(address, 2 * granule, 1, both) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(world.memory.find(address)->access == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CHECK(world.memory.set_access(address, 2 * granule, 0, both) == CUDA_SUCCESS);
  CHECK(world.memory.find(address + granule + 1)->access == both);
  CHECK(world.memory.find(address + granule + 1)->mapping == address + granule);
  CHECK(world.memory.unmap(address, granule / 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(world.memory.unmap(address, 2 * granule) == CUDA_SUCCESS);
  CHECK_FALSE(world.memory.find(address));
}

TEST_CASE("physical memory takes its bytes from the share, addresses do not") {
  World world;
  static_cast<void>(world.reserve(1000));
  const auto memory = world.create(16);
  std::uint64_t more = 0;
  CHECK(world.memory.create(granule, on_device(0), more) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_FALSE(world.books.arena.allocate(512, 1));
  CHECK(world.memory.release(memory) == CUDA_SUCCESS);
  CHECK(world.books.arena.allocate(512, 1)->address != 0);
}

TEST_CASE("a wish for addresses is granted where they are free, and alignment is kept") {
  World world;
  std::uint64_t address = 0, other = 0;
  const std::uint64_t wish = base + 100 * granule;
  REQUIRE(world.memory.reserve(0, 4 * granule, 0, wish, address) == CUDA_SUCCESS);
  CHECK(address == wish);
  REQUIRE(world.memory.reserve(0, 4 * granule, 0, wish + granule, other) == CUDA_SUCCESS);
  CHECK(other != wish + granule);
  REQUIRE(world.memory.reserve(0, granule, granule << 8, 0, other) == CUDA_SUCCESS);
  CHECK(other % (granule << 8) == 0);
  CHECK(world.memory.reserve(0, granule + 1, 0, 0, other) == CUDA_ERROR_INVALID_VALUE);
  CHECK(world.memory.reserve(0, granule, 3 * granule, 0, other) == CUDA_ERROR_INVALID_VALUE);
  CHECK(world.books.arena.inconsistency() == nullptr);
  // Ordinary allocations go around what was set aside.
  for (int n = 0; n < 16; ++n) {
    const auto got = world.books.arena.allocate(granule, 1);
    REQUIRE(got);
    CHECK((got->address + granule <= wish || got->address >= wish + 4 * granule));
  }
}

TEST_CASE("what fails as its lease has just ended leaves no trace, and is good the second time") {
  World world;
  const auto gone = CUDA_ERROR_DEVICE_UNAVAILABLE;
  const auto both = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const auto address = world.reserve(4);
  std::uint64_t memory = 0;
  world.books.without_lease = "create";
  CHECK(world.memory.create(16 * granule, on_device(0), memory) == gone);
  CHECK(memory == 0);
  CHECK(world.books.arena.used() == 0);
  REQUIRE(world.memory.create(16 * granule, on_device(0), memory) == CUDA_SUCCESS);  // all of the share

  world.books.without_lease = "map";
  CHECK(world.memory.map(address, 2 * granule, 0, memory) == gone);
  CHECK_FALSE(world.memory.find(address));
  CHECK(world.memory.unmap(address, 2 * granule) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(world.memory.map(address, 2 * granule, 0, memory) == CUDA_SUCCESS);

  world.books.without_lease = "access";
  CHECK(world.memory.set_access(address, 2 * granule, 0, both) == gone);
  CHECK(world.memory.find(address)->access == CU_MEM_ACCESS_FLAGS_PROT_NONE);
  REQUIRE(world.memory.set_access(address, 2 * granule, 0, both) == CUDA_SUCCESS);
  CHECK(world.memory.find(address)->access == both);

  CHECK(world.memory.release(memory) == CUDA_SUCCESS);
  CHECK(world.memory.unmap(address, 2 * granule) == CUDA_SUCCESS);
  CHECK(world.memory.free(address, 4 * granule) == CUDA_SUCCESS);
  CHECK(world.books.arena.used() == 0);
  CHECK(world.books.told == std::vector<std::string>{"create", "map", "access", "unmap", "release"});
}
