// User objects: resources of the program that live as long as the graphs which use them.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

// Puts off the ends of user objects in this thread: it calls the program's functions when it goes. For
// calls that hold a lock: such a function may wait for a thread that wants the lock.
class UserObjectEnds {
 public:
  UserObjectEnds();
  ~UserObjectEnds();
  UserObjectEnds(const UserObjectEnds&) = delete;
  UserObjectEnds& operator=(const UserObjectEnds&) = delete;

 private:
  friend class UserObject;
  std::vector<std::pair<CUhostFn, void*>> calls_;
};

// A reference count with a function of the program at its end. `retain` and `release` are thread safe.
class UserObject {
 public:
  UserObject(void* data, CUhostFn destroy, unsigned references)
      : data_(data), destroy_(destroy), references_(references) {}

  void retain(unsigned count) { references_ += count; }
  unsigned references() const { return references_; }
  // With the last reference goes the handle, and the program's function is called.
  // Throws Error(INVALID_VALUE) for more references than there are.
  void release(unsigned count);

 private:
  void* const data_;
  const CUhostFn destroy_;
  std::atomic<unsigned> references_;
};

// The references that one graph holds; a copy holds as many of its own, and the end of the graph releases
// them.
class UserObjectReferences {
 public:
  UserObjectReferences() = default;
  UserObjectReferences(const UserObjectReferences& other);
  UserObjectReferences& operator=(const UserObjectReferences&) = delete;
  ~UserObjectReferences();

  // Takes over references the caller owns.
  void adopt(const std::shared_ptr<UserObject>& object, unsigned count) { held_[object] += count; }
  // Throws Error(INVALID_VALUE) for more than are held.
  void release(const std::shared_ptr<UserObject>& object, unsigned count);

 private:
  std::map<std::shared_ptr<UserObject>, unsigned> held_;
};

}  // namespace softgpu::driver
