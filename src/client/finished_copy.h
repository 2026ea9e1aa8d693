// A copy to the host that has arrived says that everything before it in its stream is done. A program that
// synchronizes the stream right after it (PyTorch's .item() does) need not be sent over the network again.
#pragma once

#include <cstdint>

namespace gpupool::client {

class FinishedCopy {
 public:
  /// After a copy in `stream` has arrived; `calls` is Counters::calls() from before it was sent.
  static void note(std::uint64_t context, std::uint64_t stream, std::uint64_t calls) {
    last() = {context, stream, calls};
  }

  /// Whether this thread's last copy says that the stream is done: no message of any thread came after it.
  static bool says_done(std::uint64_t context, std::uint64_t stream, std::uint64_t calls) {
    const Last& copy = last();
    return copy.context != 0 && copy.context == context && copy.stream == stream && copy.calls + 1 == calls;
  }

 private:
  struct Last {
    std::uint64_t context = 0, stream = 0, calls = 0;
  };
  static Last& last() {
    static thread_local Last copy;
    return copy;
  }
};

}  // namespace gpupool::client
