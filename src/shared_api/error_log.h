// The log of errors that cuLogs* shows: what this runtime has to say beyond an error number.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "base/mutex.h"

namespace gpupool {

/// Thread-safe. Keeps the newest lines; each has a number that only grows.
class ErrorLog {
 public:
  static constexpr std::size_t most_lines = 100;

  /// Remembers a line and tells the callbacks, in the calling thread.
  void add(std::string_view line);

  std::uint64_t add_callback(CUlogsCallback callback, void* data);
  /// False for an unknown one.
  bool remove_callback(std::uint64_t number);

  /// The number that the next line will get.
  [[nodiscard]] std::uint32_t next() const;
  /// Lines from `first` on, newest last, cut at the front to what fits `room` bytes; moves `first` behind
  /// them.
  std::string text(std::uint32_t& first, std::size_t room) const;

 private:
  struct Callback {
    CUlogsCallback function;
    void* data;
  };
  mutable Mutex mutex_;
  std::deque<std::string> lines_ GUARDED_BY(mutex_);
  std::uint32_t dropped_ GUARDED_BY(mutex_) = 0;  ///< lines before the first one kept
  std::map<std::uint64_t, Callback> callbacks_ GUARDED_BY(mutex_);
  std::uint64_t next_callback_ GUARDED_BY(mutex_) = 1;
};

/// One per process, never destroyed.
ErrorLog& error_log();

}  // namespace gpupool
