#include "worker/outlet.h"

#include <exception>

namespace gpupool::worker {

bool Outlet::send_locked(std::span<const std::byte> frame, const Payload& payload) {
  if (payload.size == 0) return stream_.send(frame);
  if (payload.memory != nullptr) {  // one system call, and for a small payload one packet
    iovec parts[2] = {{const_cast<std::byte*>(frame.data()), frame.size()},
                      {const_cast<std::byte*>(payload.memory), payload.size}};
    return stream_.send_parts(parts, 2);
  }
  return stream_.send(frame, true) && payload.send(stream_);
}

bool Outlet::send(std::span<const std::byte> frame, const Payload& payload) {
  const std::lock_guard lock(mutex_);
  bool sent = false;
  try {
    sent = send_locked(frame, payload);
  } catch (const std::exception&) {  // part of the payload is missing
  }
  if (!sent) stream_.shut_down();
  return sent;
}

bool Outlet::push(wire::Control message, std::span<const std::byte> fields, const Payload& payload) {
  const bool bulk = payload.size > 0;
  wire::FrameHeader header{};
  header.length =
      static_cast<std::uint32_t>(sizeof(header) + fields.size() + (bulk ? sizeof(payload.size) : 0));
  header.message = static_cast<std::uint16_t>(message);
  header.flags = bulk ? wire::flag_bulk : 0;
  wire::Buffer frame;
  frame.append(&header, sizeof(header));
  frame.append(fields.data(), fields.size());
  if (bulk) frame.append(&payload.size, sizeof(payload.size));
  return send(frame.bytes(), payload);
}

}  // namespace gpupool::worker
