#include "client/memory/memory_pools.h"

#include <algorithm>

#include "client/call/objects.h"

namespace gpupool::client {

Mutex& pool_mutex() {
  static Mutex& mutex = *new Mutex;
  return mutex;
}

void uncount_in_pool(std::uint64_t pool, std::uint64_t bytes) {
  const MutexLock lock(pool_mutex());
  MemoryPool* const object = tables().pools.find(pool);
  if (object != nullptr) object->used -= std::min(object->used, bytes);
}

}  // namespace gpupool::client
