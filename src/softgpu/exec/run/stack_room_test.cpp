// Threads of a program may have less stack than kernels want.
#include "softgpu/exec/run/stack_room.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include "softgpu/exec/run/block_pages.h"

namespace softgpu {
namespace {

// On memory of its own: the system may give a thread more than it asks for.
bool room_in_a_thread_with(size_t bytes) {
  const BlockPages stack(bytes);
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstack(&attributes, stack.data(), bytes) == 0);
  bool room = false;
  const auto body = [](void* into) -> void* {
    *static_cast<bool*>(into) = has_room_for_kernels();
    return nullptr;
  };
  pthread_t thread{};
  REQUIRE(pthread_create(&thread, &attributes, body, &room) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&attributes);
  return room;
}

TEST_CASE("a thread with a small stack has no room for kernels") {
  CHECK(!room_in_a_thread_with(1 << 20));
  CHECK(!room_in_a_thread_with(3 << 20));
  CHECK(room_in_a_thread_with(8 << 20));
}

}  // namespace
}  // namespace softgpu
