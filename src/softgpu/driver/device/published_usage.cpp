#include "softgpu/driver/device/published_usage.h"

#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <utility>

#include "base/mutex.h"
#include "softgpu/driver/device/driver.h"
#include "softgpu/usage/busy_time.h"

namespace softgpu::driver {
namespace {

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

pid_t publisher = 0;

// A forked child that ends has nothing to take away.
void remove_at_exit() {
  if (getpid() == publisher) usage::UsageFolder().remove_own();
}

}  // namespace

PublishedUsage& PublishedUsage::get() {
  static auto* const made = new PublishedUsage;  // streams' threads may still run while the process ends
  return *made;
}

void PublishedUsage::begin() {
  once_.run([this] {
    record_ = usage::UsageFolder().create();
    if (record_ == nullptr) return;
    publisher = getpid();
    std::atexit(remove_at_exit);
    published_.store(&**record_);
    for (const auto& device : Driver::get().devices()) memory(device->card(), device->used_memory());
  });
}

usage::CardUsage* PublishedUsage::card_of(int card) const {
  usage::Record* const record = published_.load(std::memory_order_acquire);
  const auto index = static_cast<std::size_t>(card);
  return record != nullptr && index < usage::max_cards ? &record->cards[index] : nullptr;
}

void PublishedUsage::memory(int card, std::size_t bytes) {
  if (auto* const usage = card_of(card)) usage->memory.store(bytes, std::memory_order_relaxed);
}

void PublishedUsage::kernel_begins(int card) {
  auto* const usage = card_of(card);
  if (usage == nullptr) return;
  Running& running = running_[static_cast<std::size_t>(card)];
  const gpupool::MutexLock lock(running.mutex);
  usage->kernels.fetch_add(1, std::memory_order_relaxed);
  if (running.kernels++ == 0 && !running.stands) usage::begin_busy(*usage, monotonic_ns());
}

void PublishedUsage::kernel_ends(int card) {
  auto* const usage = card_of(card);
  if (usage == nullptr) return;
  Running& running = running_[static_cast<std::size_t>(card)];
  const gpupool::MutexLock lock(running.mutex);
  if (--running.kernels == 0 && !running.stands) usage::end_busy(*usage, monotonic_ns());
}

void PublishedUsage::stand_still(bool on) {
  for (int card = 0; card < static_cast<int>(running_.size()); ++card) {
    Running& running = running_[static_cast<std::size_t>(card)];
    const gpupool::MutexLock lock(running.mutex);
    if (std::exchange(running.stands, on) == on || running.kernels == 0) continue;
    auto* const usage = card_of(card);
    if (usage == nullptr) continue;
    on ? usage::end_busy(*usage, monotonic_ns()) : usage::begin_busy(*usage, monotonic_ns());
  }
}

}  // namespace softgpu::driver
