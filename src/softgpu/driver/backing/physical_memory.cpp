#include "softgpu/driver/backing/physical_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mutex.h"
#include "softgpu/driver/base/error.h"

namespace softgpu::driver {

PhysicalMemory::~PhysicalMemory() {
  if (file_ >= 0) close(file_);
}

int PhysicalMemory::file() {
  if (file_ < 0) file_ = memfd_create("softgpu-device-memory", MFD_CLOEXEC);
  if (file_ < 0) fail(CUDA_ERROR_OUT_OF_MEMORY);
  return file_;
}

std::size_t PhysicalMemory::allocate(std::size_t size) {
  const gpupool::MutexLock lock(mutex_);
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    const auto [offset, room] = *hole;
    if (room < size) continue;
    holes_.erase(hole);
    if (room > size) holes_.emplace(offset + size, room - size);
    return offset;
  }
  const std::size_t offset = end_;
  if (ftruncate(file(), static_cast<off_t>(end_ + size)) != 0) fail(CUDA_ERROR_OUT_OF_MEMORY);
  end_ += size;
  return offset;
}

void PhysicalMemory::free(std::size_t offset, std::size_t size) {
  const gpupool::MutexLock lock(mutex_);
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(size));
  auto next = holes_.lower_bound(offset);
  if (next != holes_.end() && next->first == offset + size) {
    size += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  holes_.emplace_hint(next, offset, size);
}

void PhysicalMemory::map(std::uint64_t address, std::size_t size, std::size_t offset) {
  const gpupool::MutexLock lock(mutex_);
  void* place = mmap(reinterpret_cast<void*>(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, file(),
                     static_cast<off_t>(offset));
  if (place == MAP_FAILED) fail(CUDA_ERROR_MAP_FAILED);
}

}  // namespace softgpu::driver
