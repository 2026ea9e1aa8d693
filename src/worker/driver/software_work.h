// What the software GPU tells and does beyond CUDA's API: it names the kernel that runs, and stops it between
// two instructions. NVIDIA's driver does neither.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace gpupool::worker {

/// Why a session's work stands still; it goes on when no reason is left.
enum class StopReason : std::uint8_t { no_lease = 1, no_turn = 2 };

/// Thread-safe.
class SoftwareWork {
 public:
  /// `library`: the driver, opened by dlopen.
  explicit SoftwareWork(void* library);

  /// Whether this driver can stop work.
  [[nodiscard]] bool able() const { return stand_still_ != nullptr && device_ns_ != nullptr; }
  /// Returns when nothing computes, after some milliseconds. False: it cannot be stopped.
  bool stop(StopReason reason);
  void go_on(StopReason reason);
  [[nodiscard]] bool stopped() const { return reasons_.load() != 0; }
  [[nodiscard]] bool stopped(StopReason reason) const {
    return (reasons_.load() & static_cast<unsigned>(reason)) != 0;
  }

  /// Time as it passes on the device, from anywhere: without that in which work stood still. It is the
  /// driver's own clock, by which its events are measured too: one kept here would differ from it a little
  /// with every stop.
  [[nodiscard]] std::int64_t device_ns() const;

  struct Kernel {
    std::string name;     ///< as in the image
    std::int64_t ns = 0;  ///< how long it has run
  };
  /// The kernel that has run for the longest; none when none runs, or where the driver does not tell.
  [[nodiscard]] std::optional<Kernel> running() const;

 private:
  int (*stand_still_)(int on) = nullptr;
  int (*running_)(char* name, std::size_t size, std::int64_t* nanoseconds) = nullptr;
  std::int64_t (*device_ns_)() = nullptr;

  std::atomic<unsigned> reasons_{0};
  std::mutex mutex_;  // of who stops and goes on
};

}  // namespace gpupool::worker
