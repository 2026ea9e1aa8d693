#include "client/lease/refused_memory.h"

#include <array>
#include <chrono>
#include <cstdio>

#include "base/mutex.h"
#include "base/process_mark.h"
#include "client/process/log.h"
#include "shared_api/error_log.h"

namespace gpupool::client {
namespace {

constexpr const char* suffix = ".out_of_memory";
constexpr std::uint64_t between_log_lines_ns = 1'000'000'000;

thread_local int no_matter = 0;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace

std::string amount(std::uint64_t bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 || value >= 100 ? "%.0f %s" : "%.3g %s", value,
                units[unit]);
  return text.data();
}

std::string RefusedMemory::json() const {
  const auto member = [](const char* name, std::uint64_t value) {
    return std::string("\"") + name + "\":" + std::to_string(value);
  };
  return "{" + member("asked", asked) + "," + member("share", share) + "," + member("used", used) + "," +
         member("largest_free", largest_free) + "," + member("needed", needed) +
         ",\"device\":" + std::to_string(device) + "}";
}

std::string RefusedMemory::sentence() const {
  return "out of memory: " + amount(asked) + " asked, the share has " + amount(share) + ", " + amount(used) +
         " used (largest free piece " + amount(largest_free) + ")";
}

void RefusedMemoryRecord::keep(const RefusedMemory& refused) {
  if (no_matter > 0) return;
  const std::string text = refused.sentence();
  remember_refusal(text);
  bool log = false;
  {
    const MutexLock lock(mutex_);
    last_ = refused;
    asked_.store(refused.asked, std::memory_order_relaxed);
    process_mark::write_beside_session(suffix, refused.json() + "\n");
    const std::uint64_t now = now_ns();
    log = logged_at_ns_ == 0 || now - logged_at_ns_ >= between_log_lines_ns;
    if (log) logged_at_ns_ = now;
  }
  if (log) log_to_file(text);
}

void RefusedMemoryRecord::forget(int device, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (last_ && last_->device == device && bytes >= last_->asked) drop();
}

void RefusedMemoryRecord::clear() {
  const MutexLock lock(mutex_);
  if (last_) drop();
}

std::optional<RefusedMemory> RefusedMemoryRecord::last() {
  const MutexLock lock(mutex_);
  return last_;
}

void RefusedMemoryRecord::drop() {
  last_.reset();
  asked_.store(0, std::memory_order_relaxed);
  process_mark::remove_beside_session(suffix);
}

RefusedMemoryRecord& refused_memory() {
  static RefusedMemoryRecord* const only = new RefusedMemoryRecord;
  return *only;
}

RefusalIsNoMatter::RefusalIsNoMatter() {
  ++no_matter;
}
RefusalIsNoMatter::~RefusalIsNoMatter() {
  --no_matter;
}

void remember_refusal(const std::string& text) {
  remember(text);
  error_log().add(text);
}

}  // namespace gpupool::client
