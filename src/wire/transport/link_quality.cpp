#include "wire/transport/link_quality.h"

#include <algorithm>
#include <charconv>
#include <thread>

namespace gpupool::wire {

std::optional<LinkQuality> LinkQuality::parse(std::string_view text, std::string& error) {
  LinkQuality quality;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    const std::size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view{} : word.substr(equals + 1);
    std::uint64_t number = 0;
    const auto [end, bad] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (bad != std::errc{} || end != value.data() + value.size() || number > 10'000'000 ||
        (key != "delay_us" && key != "mbit")) {
      error = "an emulated network is written delay_us=N,mbit=N";
      return std::nullopt;
    }
    if (key == "mbit") {
      quality.mbit = number;
    } else {
      quality.delay = std::chrono::microseconds(number);
    }
  }
  return quality;
}

std::size_t LinkQuality::room() const {
  constexpr std::size_t sockets = 4 << 20, most = 256 << 20;
  if (mbit == 0 && delay.count() > 0) return most;
  // Bytes per microsecond times the delay: what a network of this quality holds by itself.
  const std::uint64_t held = mbit * static_cast<std::uint64_t>(delay.count()) / 8;
  return sockets + static_cast<std::size_t>(std::min<std::uint64_t>(held, most));
}

DelayedBytes::Clock::time_point LinkClock::due_of(std::size_t bytes) {
  free_at_ = std::max(free_at_, DelayedBytes::Clock::now());
  if (quality_.mbit > 0) free_at_ += std::chrono::nanoseconds(bytes * 8000 / quality_.mbit);
  return free_at_ + quality_.delay;
}

void spin_until(DelayedBytes::Clock::time_point due) {
  while (DelayedBytes::Clock::now() < due) std::this_thread::yield();
}

}  // namespace gpupool::wire
