#include "fuzz/frame_script.h"

#include <algorithm>

#include "wire/bytes.h"

namespace gpupool::fuzz {

std::vector<std::byte> frames_of(std::span<const std::byte> script, const FillHeader& fill,
                                 std::byte payload_filler) {
  std::vector<std::byte> out;
  wire::Reader in(script);
  while (!in.rest().empty()) {
    FrameRecord record;
    record.message = in.get<std::uint16_t>();
    record.how = in.get<std::uint8_t>();
    if (record.how == raw_from_here) {
      const auto rest = in.rest();
      out.insert(out.end(), rest.begin(), rest.end());
      break;
    }
    const auto size = in.get<std::uint16_t>();
    record.body = in.take(std::min<std::size_t>(size, in.rest().size()));
    wire::FrameHeader header{};
    const bool payload = fill(record, header);
    if (payload) record.payload = in.rest().size() >= 2 ? in.get<std::uint16_t>() : std::uint16_t{0};
    if ((record.how & wrong_epoch) != 0) header.epoch += 1;
    if ((record.how & wrong_flags) != 0) header.flags ^= static_cast<std::uint16_t>(record.how >> 4);
    if ((record.how & wrong_sequence) != 0) header.sequence += record.how;
    const std::uint64_t payload_size = record.payload;
    header.length = static_cast<std::uint32_t>(sizeof(header) + record.body.size() +
                                               (payload ? sizeof(payload_size) : 0));
    if ((record.how & wrong_length) != 0) header.length += static_cast<std::uint32_t>(record.how) - 128;
    const auto append = [&](const void* data, std::size_t count) {
      const auto* const bytes = static_cast<const std::byte*>(data);
      out.insert(out.end(), bytes, bytes + count);
    };
    append(&header, sizeof(header));
    append(record.body.data(), record.body.size());
    if (payload) {
      append(&payload_size, sizeof(payload_size));
      out.resize(out.size() + record.payload, payload_filler);
    }
  }
  return out;
}

void append_record(std::vector<std::byte>& script, const FrameRecord& record, bool with_payload) {
  const auto append = [&](const auto& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    script.insert(script.end(), bytes.begin(), bytes.end());
  };
  append(record.message);
  append(record.how);
  append(static_cast<std::uint16_t>(record.body.size()));
  script.insert(script.end(), record.body.begin(), record.body.end());
  if (with_payload) append(record.payload);
}

}  // namespace gpupool::fuzz
