// The 64 bytes that a program passes to another process, to give it memory or an event of its session.
//
// A ticket names the worker that has the object (its office) and proves by a secret that this worker gave it
// out. It carries no address and nothing of the driver: whoever makes bytes up gets an error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace gpupool {

/// What a ticket is for. Values are on the wire.
enum class ExportKind : std::uint8_t { memory = 1, physical, pool, event };

struct ExportTicket {
  static constexpr std::uint32_t right_magic = 0x4b545047;  // "GPTK"
  static constexpr std::size_t bytes = 64;

  std::uint32_t magic = right_magic;
  std::uint32_t kind = 0;
  std::array<std::uint8_t, 16> office{};
  std::array<std::uint8_t, 32> secret{};
  std::uint64_t reserved = 0;

  [[nodiscard]] std::span<const std::byte> as_bytes() const { return std::as_bytes(std::span(this, 1)); }
  /// Nothing for bytes that no worker makes.
  [[nodiscard]] static std::optional<ExportTicket> read(std::span<const std::byte> from) {
    ExportTicket ticket;
    if (from.size() != bytes) return std::nullopt;
    std::memcpy(&ticket, from.data(), bytes);
    if (ticket.magic != right_magic || ticket.reserved != 0) return std::nullopt;
    if (ticket.kind < static_cast<std::uint32_t>(ExportKind::memory) ||
        ticket.kind > static_cast<std::uint32_t>(ExportKind::event)) {
      return std::nullopt;
    }
    return ticket;
  }
};
static_assert(sizeof(ExportTicket) == ExportTicket::bytes);

}  // namespace gpupool
