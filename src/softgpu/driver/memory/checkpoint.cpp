#include "softgpu/driver/memory/checkpoint.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/device/driver.h"
#include "softgpu/driver/memory/virtual_memory.h"
#include "softgpu/driver/stream/context.h"

namespace softgpu::driver {
namespace {

using Clock = std::chrono::steady_clock;

bool all_idle() {
  bool idle = true;
  registry<Context>().for_each([&idle](Context& context) { idle = idle && context.pending_work().empty(); });
  return idle;
}

// Work that was submitted ends first. False when it has not at `deadline`.
bool wait_for_work(std::optional<Clock::time_point> deadline) {
  for (auto pause = std::chrono::microseconds(20); !all_idle();) {
    if (deadline && Clock::now() >= *deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(pause * 2, std::chrono::milliseconds(2));
  }
  return true;
}

bool same(const CUuuid& a, const CUuuid& b) {
  return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

bool holds_something(const Device& device) {
  bool holds = device.parked_memory() > 0;
  registry<Context>().for_each(
      [&](const Context& context) { holds = holds || &context.device() == &device; });
  return holds;
}

// The card of each device after the restore.
std::vector<int> cards_after(const Driver& driver, const Checkpoint::CardPairs& pairs) {
  const auto card_with = [&](const CUuuid& uuid) {
    for (int card = 0; card < driver.settings.cards; ++card) {
      if (same(uuid_of_card(card), uuid)) return card;
    }
    fail(CUDA_ERROR_INVALID_VALUE);  // another kind of device, or none
  };
  std::vector<int> cards;
  for (const auto& device : driver.devices()) cards.push_back(device->card());
  std::vector<bool> named(cards.size());
  for (const auto& [from, to] : pairs) {
    const int old_card = card_with(from);
    const auto found = std::find_if(driver.devices().begin(), driver.devices().end(),
                                    [&](const auto& device) { return device->card() == old_card; });
    require(found != driver.devices().end());  // a card that this process does not see
    const auto index = static_cast<std::size_t>(found - driver.devices().begin());
    require(!named[index]);
    named[index] = true;
    cards[index] = card_with(to);
  }
  std::vector<bool> taken(static_cast<std::size_t>(driver.settings.cards)), open(cards.size());
  for (std::size_t index = 0; index < cards.size(); ++index) {
    if (!named[index]) {
      require(pairs.empty() || !holds_something(*driver.devices()[index]));
      open[index] = !pairs.empty();
      if (open[index]) continue;
    }
    require(!taken[static_cast<std::size_t>(cards[index])]);
    taken[static_cast<std::size_t>(cards[index])] = true;
  }
  // Devices that hold nothing keep their card where it is free, and get another one where it is not.
  for (std::size_t index = 0; index < cards.size(); ++index) {
    const auto card = static_cast<std::size_t>(cards[index]);
    if (open[index] && !taken[card]) taken[card] = true, open[index] = false;
  }
  for (std::size_t index = 0; index < cards.size(); ++index) {
    if (!open[index]) continue;
    const auto free_card = std::find(taken.begin(), taken.end(), false);
    *free_card = true;
    cards[index] = static_cast<int>(free_card - taken.begin());
  }
  return cards;
}

}  // namespace

Checkpoint& Checkpoint::of_process() {
  static auto* const made = new Checkpoint;  // streams' threads may still run while the process ends
  return *made;
}

CUprocessState Checkpoint::state() const {
  const gpupool::MutexLock lock(mutex_);
  return state_;
}

void Checkpoint::lock(unsigned timeout_ms) {
  const gpupool::MutexLock lock(mutex_);
  require(state_ == CU_PROCESS_STATE_RUNNING, CUDA_ERROR_ILLEGAL_STATE);
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<Clock::time_point> deadline;
  if (timeout_ms) {
    timeout = std::chrono::milliseconds(timeout_ms);
    deadline = Clock::now() + *timeout;
  }
  Driver& driver = Driver::get();
  require(driver.gate.close(timeout), CUDA_ERROR_NOT_READY);
  if (!wait_for_work(deadline)) {
    driver.gate.open();
    fail(CUDA_ERROR_NOT_READY);
  }
  state_ = CU_PROCESS_STATE_LOCKED;
}

void Checkpoint::save() {
  const gpupool::MutexLock lock(mutex_);
  require(state_ == CU_PROCESS_STATE_LOCKED, CUDA_ERROR_ILLEGAL_STATE);
  Driver& driver = Driver::get();
  // Address space is all that can be missing before anything has moved.
  std::vector<HostStore> stores;
  for (const auto& device : driver.devices()) stores.emplace_back(device->arena().committed());
  stores_ = std::move(stores);
  try {
    for (std::size_t n = 0; n < stores_.size(); ++n) driver.devices()[n]->arena().park(stores_[n]);
    VirtualMemory::of_process().park();
  } catch (const Error&) {
    state_ = CU_PROCESS_STATE_FAILED;
    throw;
  }
  for (const auto& device : driver.devices()) device->park_account();
  state_ = CU_PROCESS_STATE_CHECKPOINTED;
}

void Checkpoint::restore(const CardPairs& pairs) {
  const gpupool::MutexLock lock(mutex_);
  require(state_ == CU_PROCESS_STATE_CHECKPOINTED, CUDA_ERROR_ILLEGAL_STATE);
  Driver& driver = Driver::get();
  const std::vector<int> cards = cards_after(driver, pairs);
  try {
    for (HostStore& store : stores_) store.give_back();
    VirtualMemory::of_process().unpark();
  } catch (const Error&) {
    state_ = CU_PROCESS_STATE_FAILED;
    throw;
  }
  stores_.clear();
  for (std::size_t n = 0; n < cards.size(); ++n) {
    driver.devices()[n]->set_card(cards[n]);
    driver.devices()[n]->unpark_account();
  }
  state_ = CU_PROCESS_STATE_LOCKED;
}

void Checkpoint::unlock() {
  const gpupool::MutexLock lock(mutex_);
  require(state_ == CU_PROCESS_STATE_LOCKED, CUDA_ERROR_ILLEGAL_STATE);
  state_ = CU_PROCESS_STATE_RUNNING;
  Driver::get().gate.open();
}

}  // namespace softgpu::driver
