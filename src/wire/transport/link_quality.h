// The quality of an emulated network, and when bytes that are put into it come out.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpupool::wire {

/// One direction of a network. No limit: 0.
struct LinkQuality {
  std::chrono::microseconds delay{0};
  std::uint64_t mbit = 0;

  /// `delay_us=250,mbit=1000`, each part may be missing. Empty and `error` for other text.
  static std::optional<LinkQuality> parse(std::string_view text, std::string& error);
  /// Bytes that are under way at most: what the network holds, and the sockets at both ends.
  [[nodiscard]] std::size_t room() const;
};

/// Bytes under way.
struct DelayedBytes {
  using Clock = std::chrono::steady_clock;
  Clock::time_point due;
  std::vector<std::byte> bytes;
};

/// The delay belongs to each byte and not to each call: what is put in while other bytes are under way
/// follows them as closely as the bandwidth allows.
class LinkClock {
 public:
  explicit LinkClock(LinkQuality quality) : quality_(quality) {}
  /// When so many bytes come out that are put in now.
  [[nodiscard]] DelayedBytes::Clock::time_point due_of(std::size_t bytes);

 private:
  LinkQuality quality_;
  DelayedBytes::Clock::time_point free_at_{};  // when the link has sent all that was put in
};

/// Until then, to the microsecond: a timer would wake the thread some tens of them late, which counts beside
/// a network of a rack. At most link_precision before `due`.
void spin_until(DelayedBytes::Clock::time_point due);
inline constexpr std::chrono::microseconds link_precision{60};
/// Bytes that are due together.
inline constexpr std::size_t link_piece = 16 << 10;

}  // namespace gpupool::wire
