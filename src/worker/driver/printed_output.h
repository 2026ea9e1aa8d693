// What kernels print: drivers write it to the process's standard output when the device is synchronised.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <string>

namespace gpupool::worker {

/// Puts a memory file in the place of file descriptor 1 for as long as it lives. A file, not a pipe: a driver
/// that prints more than a pipe holds would wait for a reader that waits for the driver.
class PrintedOutput {
 public:
  PrintedOutput();
  ~PrintedOutput();
  PrintedOutput(const PrintedOutput&) = delete;
  PrintedOutput& operator=(const PrintedOutput&) = delete;

  /// What was printed since the last call. Cheap when nothing was. Thread-safe.
  std::string take();

 private:
  std::mutex mutex_;  // protects taken_
  off_t taken_ = 0;   // up to here the file has been read
  int file_ = -1;
  int original_ = -1;  // kept open: whoever reads the worker's standard output must not see it end
};

}  // namespace gpupool::worker
