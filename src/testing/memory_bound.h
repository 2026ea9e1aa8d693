// A bound of the memory that this process may still take: for tests of what must not take much.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>

namespace testing {

/// While it lives, no more than so many bytes can be added to the address space. What is loaded at a first
/// use has to be there before.
class MemoryBound {
 public:
  explicit MemoryBound(std::size_t bytes) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before_);
    rlimit bound = before_;
    bound.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + bytes;
    if (before_.rlim_cur == RLIM_INFINITY || bound.rlim_cur < before_.rlim_cur) setrlimit(RLIMIT_AS, &bound);
  }
  ~MemoryBound() { setrlimit(RLIMIT_AS, &before_); }
  MemoryBound(const MemoryBound&) = delete;
  MemoryBound& operator=(const MemoryBound&) = delete;

 private:
  rlimit before_{};
};

}  // namespace testing
