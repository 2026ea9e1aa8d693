// What the worker reads before and beside the frames: the start record, the agent's lines, the HELLO.
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "worker/lease/handshake.h"
#include "worker/process/control_line.h"
#include "worker/process/start_record.h"

using namespace gpupool;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 3) {
    case 0:
      try {
        static_cast<void>(worker::parse_start_record(text));
      } catch (const std::runtime_error&) {
        return 0;  // a refusal
      }
      return 0;
    case 1:
      static_cast<void>(worker::parse_control_line(text));
      return 0;
    default: {
      const std::array<std::uint8_t, 32> token{};
      const std::array<std::uint8_t, 16> session{};
      worker::Handshake handshake(token, token, session);
      for (auto left = std::as_bytes(std::span(text)); !left.empty() && handshake.wanted() > 0;) {
        const auto part = std::min(left.size(), handshake.wanted());
        handshake.feed(left.first(part));
        left = left.subspan(part);
      }
      return 0;
    }
  }
}
