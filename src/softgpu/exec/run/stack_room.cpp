#include "softgpu/exec/run/stack_room.h"

#include <pthread.h>

#include <cstddef>
#include <cstdint>

namespace softgpu {
namespace {

constexpr size_t needed_room = 4 << 20;

// The lowest address of this thread's stack; the highest there is where that cannot be told.
uintptr_t lowest_of_stack() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return UINTPTR_MAX;
  void* lowest = nullptr;
  size_t bytes = 0;
  const bool told = pthread_attr_getstack(&attributes, &lowest, &bytes) == 0;
  pthread_attr_destroy(&attributes);
  return told ? reinterpret_cast<uintptr_t>(lowest) : UINTPTR_MAX;
}

}  // namespace

bool has_room_for_kernels() {
  static thread_local const uintptr_t lowest = lowest_of_stack();
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return here > lowest && here - lowest >= needed_room;
}

}  // namespace softgpu
