// Fuzz input that becomes frames: most headers come out right, so that what is tested is behind them.
//
// A record: u16 message, u8 how, u16 body length, the body, and for a payload u16 its length; the payload's
// bytes are all the same. A record with `how` = 0xff ends the script: the rest of the input is sent as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "wire/frame.h"

namespace gpupool::fuzz {

struct FrameRecord {
  std::uint16_t message = 0;
  std::uint8_t how = 0;  ///< 0: as it should be; bits: see wrong_*
  std::uint16_t payload = 0;
  std::span<const std::byte> body;
};

inline constexpr std::uint8_t wrong_epoch = 1, wrong_length = 2, wrong_flags = 4, wrong_sequence = 8,
                              raw_from_here = 0xff;

/// Fills in message, flags, epoch and sequence as they should be; whether a payload follows.
using FillHeader = std::function<bool(const FrameRecord&, wire::FrameHeader&)>;

/// The bytes of all frames.
std::vector<std::byte> frames_of(std::span<const std::byte> script, const FillHeader& fill,
                                 std::byte payload_filler);

/// The other way round, for seeds.
void append_record(std::vector<std::byte>& script, const FrameRecord& record, bool with_payload);

}  // namespace gpupool::fuzz
