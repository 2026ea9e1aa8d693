#include "client/objects/user_objects.h"

#include "base/mutex.h"

namespace gpupool::client {
namespace {

struct Object {
  void* data;
  CUhostFn destroy;
  unsigned references;
};
struct Objects {
  Mutex mutex;
  std::map<CUuserObject, Object> all GUARDED_BY(mutex);
  std::uint64_t next GUARDED_BY(mutex) = 0x75'0000'0000'0001;  // no address of user space
};
Objects& objects() {
  static Objects& all = *new Objects;
  return all;
}

}  // namespace

CUuserObject make_user_object(void* data, CUhostFn destroy, unsigned references) {
  const MutexLock lock(objects().mutex);
  const auto handle = reinterpret_cast<CUuserObject>(objects().next++);
  objects().all[handle] = {data, destroy, references};
  return handle;
}

bool retain_user_object(CUuserObject object, unsigned count) {
  const MutexLock lock(objects().mutex);
  const auto found = objects().all.find(object);
  if (found == objects().all.end()) return false;
  found->second.references += count;
  return true;
}

bool release_user_object(CUuserObject object, unsigned count) {
  Object last{};
  {
    const MutexLock lock(objects().mutex);
    const auto found = objects().all.find(object);
    if (found == objects().all.end() || count > found->second.references) return false;
    found->second.references -= count;
    if (found->second.references > 0) return true;
    last = found->second;
    objects().all.erase(found);
  }
  last.destroy(last.data);
  return true;
}

bool UserObjectReferences::give(CUuserObject object, unsigned count) {
  const auto found = held_.find(object);
  if (found == held_.end() || count > found->second) return false;
  if ((found->second -= count) == 0) held_.erase(found);
  return true;
}

void UserObjectReferences::add(const UserObjectReferences& other) {
  for (const auto& [object, count] : other.held_) {
    if (retain_user_object(object, count)) adopt(object, count);
  }
}

void UserObjectReferences::clear() {
  for (const auto& [object, count] : held_) release_user_object(object, count);
  held_.clear();
}

}  // namespace gpupool::client
