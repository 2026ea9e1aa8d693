// Physical memory that the driver holds for a multicast object or a logical endpoint: it counts against the
// share until it is unbound, whatever the client has released meanwhile.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace gpupool::worker {

class PhysicalMemory;

class BoundMemory {
 public:
  [[nodiscard]] std::size_t size() const { return bound_.size(); }
  void add(CUdevice device, std::uint64_t offset, std::uint64_t size,
           std::shared_ptr<PhysicalMemory> memory) {
    bound_.insert_or_assign({device, offset}, Bound{size, std::move(memory)});
  }
  /// What lies inside the range as a whole: the driver unbinds nothing else.
  void remove(CUdevice device, std::uint64_t offset, std::uint64_t size) {
    std::erase_if(bound_, [&](const auto& entry) {
      const auto& [its_device, at] = entry.first;
      return its_device == device && at >= offset && at - offset <= size &&
             entry.second.size <= size - (at - offset);
    });
  }

 private:
  struct Bound {
    std::uint64_t size;
    std::shared_ptr<PhysicalMemory> memory;
  };
  std::map<std::pair<CUdevice, std::uint64_t>, Bound> bound_;
};

}  // namespace gpupool::worker
