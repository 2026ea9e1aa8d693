#include "client/objects/user_objects.h"

#include <limits>

#include "base/mutex.h"

namespace gpupool::client {
namespace {

struct Object {
  void* data = nullptr;
  CUhostFn destroy = nullptr;
  unsigned references = 0;  ///< all
  unsigned of_graphs = 0;   ///< those of them that graphs hold

  [[nodiscard]] unsigned of_program() const { return references - of_graphs; }
  bool retain(unsigned count) {
    if (count > std::numeric_limits<unsigned>::max() - references) return false;
    references += count;
    return true;
  }
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

/// False for more than the program, or all graphs together, have.
bool release(CUuserObject object, unsigned count, bool of_graph) {
  Object last{};
  {
    const MutexLock lock(objects().mutex);
    const auto found = objects().all.find(object);
    if (found == objects().all.end()) return false;
    Object& known = found->second;
    if (count > (of_graph ? known.of_graphs : known.of_program())) return false;
    if (of_graph) known.of_graphs -= count;
    known.references -= count;
    if (known.references > 0) return true;
    last = known;
    objects().all.erase(found);
  }
  last.destroy(last.data);
  return true;
}

}  // namespace

CUuserObject make_user_object(void* data, CUhostFn destroy, unsigned references) {
  const MutexLock lock(objects().mutex);
  const auto handle = reinterpret_cast<CUuserObject>(objects().next++);
  objects().all[handle] = {data, destroy, references, 0};
  return handle;
}

bool retain_user_object(CUuserObject object, unsigned count) {
  const MutexLock lock(objects().mutex);
  const auto found = objects().all.find(object);
  return found != objects().all.end() && found->second.retain(count);
}

bool release_user_object(CUuserObject object, unsigned count) {
  return release(object, count, false);
}

bool UserObjectReferences::take(CUuserObject object, unsigned count, bool of_program) {
  // Before anything is counted: it may throw.
  const auto [held, is_new] = held_.try_emplace(object, 0u);
  const MutexLock lock(objects().mutex);
  const auto found = objects().all.find(object);
  const bool good = found != objects().all.end() &&
                    (of_program ? count <= found->second.of_program() : found->second.retain(count));
  if (good) {
    found->second.of_graphs += count;
    held->second += count;
  } else if (is_new) {
    held_.erase(held);
  }
  return good;
}

bool UserObjectReferences::give(CUuserObject object, unsigned count) {
  const auto found = held_.find(object);
  if (found == held_.end() || count > found->second) return false;
  if ((found->second -= count) == 0) held_.erase(found);
  const MutexLock lock(objects().mutex);
  objects().all.at(object).of_graphs -= count;
  return true;
}

void UserObjectReferences::add(const UserObjectReferences& other) {
  for (const auto& [object, count] : other.held_) retain(object, count);
}

void UserObjectReferences::clear() {
  for (const auto& [object, count] : held_) release(object, count, true);
  held_.clear();
}

}  // namespace gpupool::client
