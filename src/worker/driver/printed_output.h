// What kernels print: drivers write it to the process's standard output when the device is synchronised.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <mutex>
#include <string>

namespace gpupool::worker {

/// Puts a memory file in the place of file descriptor 1 from begin() on, for as long as it lives. A file, not
/// a pipe: a driver that prints more than a pipe holds would wait for a reader that waits for the driver.
/// Thread-safe.
class PrintedOutput {
 public:
  static constexpr std::size_t most_at_once = 1 << 20;
  static constexpr std::size_t most_kept = 16 << 20;

  PrintedOutput() = default;
  ~PrintedOutput();
  PrintedOutput(const PrintedOutput&) = delete;
  PrintedOutput& operator=(const PrintedOutput&) = delete;

  /// Again is no error.
  void begin();
  /// The oldest of what was printed and not taken, at most `most_at_once`. Cheap when there is nothing.
  std::string take();
  /// All that was printed and not taken, without taking it; not more than `most_kept`, and a line.
  std::string rest();
  /// Drops all but the newest `most_kept`: a kernel that prints for ever must not fill the machine's memory.
  /// The next text begins with how much is missing.
  void trim();
  /// Nobody is left whom it is for.
  void clear();

 private:
  // Precondition of these: mutex_ held.
  [[nodiscard]] std::size_t untaken() const;
  [[nodiscard]] std::string read(std::size_t size) const;
  void let_go(std::size_t size);
  void keep_newest(std::size_t size);
  [[nodiscard]] std::string missing() const;

  std::mutex mutex_;         // protects the rest
  off_t taken_ = 0;          // up to here the file has been read
  std::size_t dropped_ = 0;  // of it without anybody having been told
  int file_ = -1;
  int original_ = -1;  // kept open: whoever reads the worker's standard output must not see it end
};

}  // namespace gpupool::worker
