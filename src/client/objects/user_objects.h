// User objects: resources of the program that live as long as the graphs which use them. The worker knows
// nothing of them.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>

namespace gpupool::client {

/// A handle with `references` references, which are the program's. 0 when out of memory.
CUuserObject make_user_object(void* data, CUhostFn destroy, unsigned references);
/// False for an object that there is not, or more references than can be counted.
bool retain_user_object(CUuserObject object, unsigned count);
/// False for more references than the program has; those that graphs hold are theirs. At the last reference
/// the program's function is called, here and now.
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

  /// Takes over references of the program's. False for more than it has.
  bool adopt(CUuserObject object, unsigned count) { return take(object, count, true); }
  /// Takes further ones. False as for retain_user_object.
  bool retain(CUuserObject object, unsigned count) { return take(object, count, false); }
  /// False for more than are held; else they are the program's.
  bool give(CUuserObject object, unsigned count);
  /// As many references of its own as `other` has.
  void add(const UserObjectReferences& other);
  void clear();
  [[nodiscard]] bool empty() const { return held_.empty(); }

 private:
  bool take(CUuserObject object, unsigned count, bool of_program);

  std::map<CUuserObject, unsigned> held_;
};

}  // namespace gpupool::client
