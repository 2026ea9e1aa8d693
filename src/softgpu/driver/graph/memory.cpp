#include "softgpu/driver/graph/memory.h"

#include <map>

#include "base/mutex.h"
#include "softgpu/driver/backing/allocation_table.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/device/device.h"

namespace softgpu::driver {
namespace {

struct Amount {
  std::size_t now = 0, high = 0;
  void add(std::size_t size) {
    now += size;
    if (now > high) high = now;
  }
};
struct Account {
  Amount used, reserved;
};

struct GraphMemory {
  gpupool::Mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<GraphAllocation>> by_address GUARDED_BY(mutex);
  std::map<const Device*, Account> accounts GUARDED_BY(mutex);
};
GraphMemory& memory() {
  static GraphMemory& all = *new GraphMemory;
  return all;
}

constexpr std::size_t graph_memory_alignment = 512;

}  // namespace

GraphAllocation::GraphAllocation(Device& of_device, std::size_t of_size) : device(of_device), size(of_size) {
  require(size > 0);
  address = device.allocate(size, graph_memory_alignment);
  Allocation allocation;  // of no context: it lives as long as the graph
  allocation.base = address;
  allocation.size = size;
  allocation.device = device.ordinal();
  if (!AllocationTable::of_process().add(allocation)) {
    device.free(address, size);
    fail(CUDA_ERROR_UNKNOWN);
  }
  const gpupool::MutexLock lock(memory().mutex);
  memory().accounts[&device].reserved.add(size);
}

GraphAllocation::~GraphAllocation() {
  {
    const gpupool::MutexLock lock(memory().mutex);
    memory().by_address.erase(address);
    Account& account = memory().accounts[&device];
    account.reserved.now -= size;
  }
  AllocationTable::of_process().remove(address);
  device.free(address, size);
}

void GraphAllocation::take_into_use() {
  const gpupool::MutexLock lock(memory().mutex);
  require(!in_use());
  used_ = shared_from_this();
  memory().accounts[&device].used.add(size);
}

void GraphAllocation::end_use() {
  std::shared_ptr<GraphAllocation> last;  // its end needs the lock
  const gpupool::MutexLock lock(memory().mutex);
  require(in_use());
  last.swap(used_);
  memory().accounts[&device].used.now -= size;
}

std::shared_ptr<GraphAllocation> make_graph_allocation(Device& device, std::size_t size) {
  auto made = std::make_shared<GraphAllocation>(device, size);
  const gpupool::MutexLock lock(memory().mutex);
  memory().by_address[made->address] = made;
  return made;
}

std::shared_ptr<GraphAllocation> find_graph_allocation(std::uint64_t address) {
  const gpupool::MutexLock lock(memory().mutex);
  const auto found = memory().by_address.find(address);
  return found == memory().by_address.end() ? nullptr : found->second.lock();
}

cuuint64_t graph_memory_attribute(const Device& device, CUgraphMem_attribute attribute) {
  const gpupool::MutexLock lock(memory().mutex);
  const Account& account = memory().accounts[&device];
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      return account.used.now;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      return account.used.high;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      return account.reserved.now;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      return account.reserved.high;
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

void reset_graph_memory_attribute(const Device& device, CUgraphMem_attribute attribute) {
  const gpupool::MutexLock lock(memory().mutex);
  Account& account = memory().accounts[&device];
  require(attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
  Amount& amount = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ? account.used : account.reserved;
  amount.high = amount.now;
}

}  // namespace softgpu::driver
