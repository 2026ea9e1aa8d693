// The boundary of a library's C interface: what is exported, and no exception gets out.
#pragma once

#include <exception>
#include <new>

#define GPUPOOL_LIBRARY_EXPORT extern "C" __attribute__((visibility("default")))

namespace gpupool::libraries {

/// The result of `body`, or what a library answers when memory, or anything else, is lacking.
template <class Status, class Body>
Status guarded(Status no_memory, Status failed, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return no_memory;
  } catch (const std::exception&) {
    return failed;
  }
}

}  // namespace gpupool::libraries
