// The log of errors that cuLogs* shows: what this runtime has to say beyond an error number.
//
// Callbacks are the program's and may make any call, so none is called while the thread holds something that
// such a call could need: code that takes locks, or reads for others, opens a CallbacksLater before.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace gpupool {

/// Thread-safe. Keeps the newest lines; each has a number that only grows.
class ErrorLog {
 public:
  static constexpr std::size_t most_lines = 100;

  /// Remembers a line and tells the callbacks, in the calling thread: now, or when its CallbacksLater ends.
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
  friend class CallbacksLater;
  void tell(const std::string& line);

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

/// While one lives, callbacks are not told what this thread adds to logs: they are at the end of the
/// outermost.
class CallbacksLater {
 public:
  CallbacksLater() { ++depth_; }
  ~CallbacksLater() {
    if (--depth_ == 0 && waiting_ != nullptr) tell();
  }
  CallbacksLater(const CallbacksLater&) = delete;
  CallbacksLater& operator=(const CallbacksLater&) = delete;

 private:
  friend class ErrorLog;
  struct Waiting {
    ErrorLog* log;
    std::string line;
  };
  static void tell() noexcept;

  // The thread's. Without destructors: calls may come when its variables are gone.
  static inline constinit thread_local unsigned depth_ = 0;
  static inline constinit thread_local std::vector<Waiting>* waiting_ = nullptr;  ///< null: nothing
};

/// One per process, never destroyed.
ErrorLog& error_log();

}  // namespace gpupool
