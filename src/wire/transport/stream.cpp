#include "wire/transport/stream.h"

namespace gpupool::wire {

bool Stream::receive(void* into, std::size_t size) {
  auto* at = static_cast<std::byte*>(into);
  while (size > 0) {
    const std::size_t got = receive_some(at, size);
    if (got == 0) return false;
    at += got;
    size -= got;
  }
  return true;
}

}  // namespace gpupool::wire
