#include "softgpu/driver/graph/conditional.h"

#include <map>

#include "base/mutex.h"

namespace softgpu::driver {
namespace {

struct Handles {
  gpupool::Mutex mutex;
  CUgraphConditionalHandle next GUARDED_BY(mutex) = 0x10001;
  std::map<CUgraphConditionalHandle, std::weak_ptr<ConditionalValue>> values GUARDED_BY(mutex);
};
Handles& handles() {
  static Handles& all = *new Handles;
  return all;
}

}  // namespace

std::shared_ptr<ConditionalValue> make_conditional(CUgraphConditionalHandle& handle) {
  auto made = std::make_shared<ConditionalValue>();
  Handles& all = handles();
  const gpupool::MutexLock lock(all.mutex);
  std::erase_if(all.values, [](const auto& entry) { return entry.second.expired(); });
  handle = all.next++;
  made->handle = handle;
  all.values[handle] = made;
  return made;
}

std::shared_ptr<ConditionalValue> find_conditional(CUgraphConditionalHandle handle) {
  Handles& all = handles();
  const gpupool::MutexLock lock(all.mutex);
  const auto found = all.values.find(handle);
  return found == all.values.end() ? nullptr : found->second.lock();
}

bool set_conditional(CUgraphConditionalHandle handle, unsigned value) {
  const auto found = find_conditional(handle);
  if (found) found->value.store(value);
  return found != nullptr;
}

}  // namespace softgpu::driver
