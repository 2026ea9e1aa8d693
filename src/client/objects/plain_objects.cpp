#include "client/objects/plain_objects.h"

namespace gpupool::client {
namespace {

template <wire::Kind kind>
bool alive(std::uint64_t value) {
  return plain_table<kind>().find(value) != nullptr;
}

}  // namespace

bool known_plain(wire::Kind kind, std::uint64_t value) {
  using enum wire::Kind;
  switch (kind) {
    case graph_node:
      return alive<graph_node>(value);
    case array:
      return alive<array>(value);
    case mipmapped_array:
      return alive<mipmapped_array>(value);
    case texture_reference:
      return alive<texture_reference>(value);
    case surface_reference:
      return alive<surface_reference>(value);
    case green_context:
      return alive<green_context>(value);
    case resource_descriptor:
      return alive<resource_descriptor>(value);
    case user_object:
      return alive<user_object>(value);
    case allocation:
      return alive<allocation>(value);
    default:
      return false;
  }
}

void end_arrays_of(std::uint64_t context) {
  plain_table<wire::Kind::mipmapped_array>().each([&](std::uint64_t handle, const PlainObject& object) {
    if (object.context != context) return;
    messages::cuMipmappedArrayDestroy m;
    m.hMipmappedArray = handle;
    static_cast<void>(end_object<wire::Kind::mipmapped_array>(handle, m));
  });
  plain_table<wire::Kind::array>().each([&](std::uint64_t handle, const PlainObject& object) {
    if (object.context != context) return;
    messages::cuArrayDestroy m;
    m.hArray = handle;  // what went with a mipmapped array is refused, and forgotten here
    static_cast<void>(end_object<wire::Kind::array>(handle, m));
  });
}

}  // namespace gpupool::client
