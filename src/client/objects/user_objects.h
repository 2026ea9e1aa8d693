// User objects: resources of the program that live as long as the graphs which use them. The worker knows
// nothing of them.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>

namespace gpupool::client {

/// A handle with `references` references. 0 when out of memory.
CUuserObject make_user_object(void* data, CUhostFn destroy, unsigned references);
bool retain_user_object(CUuserObject object, unsigned count);
/// False for more references than there are. At the last one the program's function is called, here and now.
bool release_user_object(CUuserObject object, unsigned count);

/// References that one graph holds. Copying takes as many again; the owner calls clear(), with no lock held.
class UserObjectReferences {
 public:
  UserObjectReferences() = default;
  UserObjectReferences(UserObjectReferences&& other) noexcept { held_.swap(other.held_); }
  UserObjectReferences& operator=(UserObjectReferences&& other) noexcept {
    held_.swap(other.held_);
    return *this;
  }

  /// Takes over references that the caller owns.
  void adopt(CUuserObject object, unsigned count) { held_[object] += count; }
  /// False for more than are held; else they are the caller's.
  bool give(CUuserObject object, unsigned count);
  /// As many references of its own as `other` has.
  void add(const UserObjectReferences& other);
  void clear();
  [[nodiscard]] bool empty() const { return held_.empty(); }

 private:
  std::map<CUuserObject, unsigned> held_;
};

}  // namespace gpupool::client
