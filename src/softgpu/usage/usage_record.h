// What one process uses of the software GPUs of its machine, as other processes can read it: NVML asks across
// processes. One file of shared memory per process, written by its driver, read by anybody of the same user.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace softgpu::usage {

inline constexpr std::uint64_t record_magic = 0x31305355'55504753ULL;  // "SGPUUS01", the layout below
inline constexpr std::size_t max_cards = 16;
inline constexpr std::size_t sample_count = 16;
// The youngest samples of a device that works all the time reach back for about two seconds.
inline constexpr std::int64_t sample_ns = 125'000'000;

// All times: CLOCK_MONOTONIC, nanoseconds.
struct Sample {
  std::atomic<std::int64_t> at{0};    // 0: none yet
  std::atomic<std::int64_t> busy{0};  // how long kernels had run until then
};

struct CardUsage {
  std::atomic<std::uint64_t> memory{0};  // bytes
  std::atomic<std::uint64_t> kernels{0};
  // Odd while the writer changes what follows.
  std::atomic<std::uint32_t> sequence{0};
  std::atomic<std::uint32_t> next_sample{0};
  std::atomic<std::int64_t> busy{0};  // time in which at least one kernel ran, without the one under way
  std::atomic<std::int64_t> busy_since{0};  // 0: no kernel runs
  std::atomic<std::int64_t> idle_since{0};  // when the last kernel ended
  std::array<Sample, sample_count> samples;
};

struct Record {
  std::atomic<std::uint64_t> magic{0};  // written last
  std::uint64_t start_ticks = 0;        // of the process, so that a later one of its number is told from it
  std::array<CardUsage, max_cards> cards;
};

static_assert(std::atomic<std::int64_t>::is_always_lock_free);

}  // namespace softgpu::usage
