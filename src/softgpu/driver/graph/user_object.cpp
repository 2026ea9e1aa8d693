#include "softgpu/driver/graph/user_object.h"

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"

namespace softgpu::driver {

bool UserObject::release(unsigned count) {
  unsigned now = references_.load();
  do {
    require(count <= now);
  } while (!references_.compare_exchange_weak(now, now - count));
  if (now != count) return false;
  destroy_(data_);
  // The handle ends with the last reference, wherever that was held.
  registry<UserObject>().take_if([this](const UserObject& other) { return &other == this; });
  return true;
}

UserObjectReferences::UserObjectReferences(const UserObjectReferences& other) : held_(other.held_) {
  for (const auto& [object, count] : held_) object->retain(count);
}

UserObjectReferences::~UserObjectReferences() {
  for (const auto& [object, count] : held_) object->release(count);
}

void UserObjectReferences::release(const std::shared_ptr<UserObject>& object, unsigned count) {
  const auto found = held_.find(object);
  require(found != held_.end() && count <= found->second);
  if ((found->second -= count) == 0) held_.erase(found);
  object->release(count);
}

}  // namespace softgpu::driver
