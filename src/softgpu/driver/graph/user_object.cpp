#include "softgpu/driver/graph/user_object.h"

#include <algorithm>

#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"

namespace softgpu::driver {

namespace {

thread_local UserObjectEnds* current_ends = nullptr;

}  // namespace

UserObjectEnds::UserObjectEnds() {
  current_ends = this;
}

UserObjectEnds::~UserObjectEnds() {
  current_ends = nullptr;
  for (const auto& [destroy, data] : calls_) destroy(data);
}

void UserObject::release(unsigned count) {
  unsigned now = references_.load();
  do {
    require(count <= now);
  } while (!references_.compare_exchange_weak(now, now - count));
  if (now != count) return;
  // The handle ends with the last reference, wherever that was held.
  registry<UserObject>().take_if([this](const UserObject& other) { return &other == this; });
  if (current_ends != nullptr) {
    current_ends->calls_.emplace_back(destroy_, data_);
  } else {
    destroy_(data_);
  }
}

UserObjectReferences::UserObjectReferences(const UserObjectReferences& other) : held_(other.held_) {
  for (const auto& [object, count] : held_) object->retain(count);
}

UserObjectReferences::~UserObjectReferences() {
  // The program may have released more than its own.
  for (const auto& [object, count] : held_) {
    if (const unsigned now = std::min(count, object->references()); now > 0) object->release(now);
  }
}

void UserObjectReferences::release(const std::shared_ptr<UserObject>& object, unsigned count) {
  const auto found = held_.find(object);
  require(found != held_.end() && count <= found->second);
  if ((found->second -= count) == 0) held_.erase(found);
  object->release(count);
}

}  // namespace softgpu::driver
