// What a client would have put into the headers of its frames.
#pragma once

#include <cstring>

#include "fuzz/frame_script.h"
#include "wire/hello.h"
#include "worker/conversation/dispatch.h"

namespace gpupool::fuzz {

inline constexpr std::uint32_t epoch = 7;
inline constexpr std::uint64_t arena = std::uint64_t{6} << 44;

/// Messages from 0: the calls of the table, then the control messages.
class WorkerFrames {
 public:
  bool operator()(const FrameRecord& record, wire::FrameHeader& header) {
    header.epoch = epoch;
    header.sequence = ++sequence_;
    const unsigned row = record.message % (message_count + wire::last_control);
    if (row >= message_count) {
      header.message = static_cast<std::uint16_t>(row - message_count + 1);
      const bool post = header.message == static_cast<std::uint16_t>(wire::Control::goodbye) ||
                        header.message == static_cast<std::uint16_t>(wire::Control::limit_answered);
      header.flags = post ? 0 : wire::flag_ask;
      // What only workers say stands for what is not numbered.
      const auto control = static_cast<wire::Control>(header.message);
      if (control != wire::Control::completed && control != wire::Control::copied) return false;
      header.message = static_cast<std::uint16_t>(
          control == wire::Control::completed ? wire::Control::taken : wire::Control::repeat);
      header.flags = 0;
      header.sequence = 0;
      --sequence_;
      return false;
    }
    const worker::Dispatch& entry = worker::dispatch_table[row];
    header.message = static_cast<std::uint16_t>(wire::first_call + row);
    header.flags = static_cast<std::uint16_t>((entry.is_ask ? wire::flag_ask : 0) |
                                              (entry.has_payload ? wire::flag_bulk : 0));
    return entry.has_payload;
  }

 private:
  std::uint64_t sequence_ = 1;
};

inline std::vector<std::byte> hello_of(std::uint64_t pid) {
  wire::FrameHeader header{};
  header.length = sizeof(wire::FrameHeader) + sizeof(wire::HelloBody);
  header.message = static_cast<std::uint16_t>(wire::Control::hello);
  header.flags = wire::flag_ask;
  wire::HelloBody body{};
  body.magic = wire::hello_magic;
  body.version = wire::protocol_version;
  body.pid = pid;
  body.arena_base = arena;
  std::vector<std::byte> bytes(header.length);
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), &body, sizeof(body));
  return bytes;
}

}  // namespace gpupool::fuzz
