// What this process uses of each card, for other processes: NVML lists processes, memory and busy time of a
// card. Begins with the first context, as NVIDIA's list does. Where the record cannot be made, nothing is
// told.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "base/mutex.h"
#include "base/once.h"
#include "softgpu/usage/usage_folder.h"

namespace softgpu::driver {

class PublishedUsage {
 public:
  static PublishedUsage& get();

  // Idempotent.
  void begin();
  void memory(int card, std::size_t bytes);
  void kernel_begins(int card);
  void kernel_ends(int card);
  // Kernels that stand still keep no card busy.
  void stand_still(bool on);

 private:
  PublishedUsage() = default;
  usage::CardUsage* card_of(int card) const;

  gpupool::Once once_;
  std::unique_ptr<usage::MappedRecord> record_;
  std::atomic<usage::Record*> published_{nullptr};
  struct Running {
    gpupool::Mutex mutex;
    unsigned kernels GUARDED_BY(mutex) = 0;
    bool stands GUARDED_BY(mutex) = false;
  };
  std::array<Running, usage::max_cards> running_;
};

// A kernel that runs while this lives.
class RunningKernel {
 public:
  explicit RunningKernel(int card) : card_(card) { PublishedUsage::get().kernel_begins(card_); }
  ~RunningKernel() { PublishedUsage::get().kernel_ends(card_); }
  RunningKernel(const RunningKernel&) = delete;
  RunningKernel& operator=(const RunningKernel&) = delete;

 private:
  const int card_;
};

}  // namespace softgpu::driver
