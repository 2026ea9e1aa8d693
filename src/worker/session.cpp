// The loop that reads a client's frames, executes them and answers.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <thread>

#include "generated/message_ids.h"
#include "wire/hello.h"
#include "worker/dispatch.h"
#include "worker/executor.h"

namespace gpupool::worker {

struct Executor::Connection {
  explicit Connection(wire::Stream& carrier) : stream(carrier), receiver(carrier) {}
  wire::Stream& stream;
  wire::Receiver receiver;
  wire::Buffer fields;  ///< packed reply fields of the call being executed
  wire::Buffer frame;
};

namespace {

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

ServeEnd Executor::serve(wire::Stream& stream, std::span<const std::byte> hello) {
  Connection connection(stream);
  connection_ = &connection;
  {
    const std::lock_guard lock(serving_);
    served_ = &stream;
  }
  goodbye_ = false;
  printed_.emplace();
  wire::FrameHeader header{};
  wire::HelloBody body{};
  if (wire::read_front(hello, header) && wire::read_front(hello.subspan(sizeof(header)), body) &&
      greet(connection, header, body)) {
    std::span<const std::byte> frame;
    while (true) {
      if (!connection.receiver.has_frame()) waits();  // nothing left to do: a burst of device work ends here
      if (!connection.receiver.receive(header, frame)) break;
      const std::lock_guard lock(executing_);
      if (!execute(connection, header, frame)) break;
    }
  }
  waits();
  printed_.reset();
  {
    const std::lock_guard lock(serving_);
    served_ = nullptr;
  }
  connection_ = nullptr;
  return goodbye_ ? ServeEnd::goodbye : ServeEnd::broken;
}

bool Executor::greet(Connection& connection, const wire::FrameHeader& header, const wire::HelloBody& hello) {
  wire::HelloReply answer;
  payload_out_ = {};  // what the connection before left unfinished
  keep_fields_ = false;
  try {
    const std::lock_guard lock(executing_);
    if (client_pid_ != 0 && client_pid_ != hello.pid) reset();
    if (device_of_.empty()) open_devices(hello.arena_base);
    client_pid_ = hello.pid;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "session not opened: %s\n", failure.what());
    reply(connection, header, CUDA_ERROR_DEVICE_UNAVAILABLE, wire::Status::closed);
    return false;
  }
  answer.fingerprint = table_fingerprint;
  for (const auto& arena : arenas_) {
    answer.devices.push_back({arena->base(), DeviceArena::span, arena->granularity(), arena->limit()});
  }
  const std::string profile = format_profile(profile_);
  answer.profile = profile;
  connection.fields.clear();
  wire::Writer out(connection.fields);
  answer.encode(out);
  return reply(connection, header, CUDA_SUCCESS, wire::Status::ok);
}

bool Executor::execute(Connection& connection, const wire::FrameHeader& header,
                       std::span<const std::byte> body) {
  payload_out_ = {};
  keep_fields_ = false;
  payload_left_ = 0;
  if ((header.flags & wire::flag_reply) != 0) return false;
  if ((header.flags & wire::flag_bulk) != 0 &&
      !wire::read_front(body.last(sizeof(std::uint64_t)), payload_left_)) {
    return false;
  }
  connection.fields.clear();
  state.usage.received(body.size() + payload_left_);
  return header.message < wire::first_call ? control(connection, header, body)
                                           : call(connection, header, body);
}

bool Executor::call(Connection& connection, const wire::FrameHeader& header,
                    std::span<const std::byte> body) {
  const std::size_t row = header.message - wire::first_call;
  if (row >= message_count) return false;
  const Dispatch& entry = dispatch_table[row];
  const bool ask = (header.flags & wire::flag_ask) != 0;
  if (ask != entry.is_ask || ((header.flags & wire::flag_bulk) != 0) != entry.has_payload) return false;

  const std::uint64_t start = ask ? monotonic_ns() : 0;
  const Admission admission =
      entry.needs_lease ? state.gate.admits(header.epoch, boottime_ns()) : Admission::ok;
  CUresult result = CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (admission == Admission::ok) {
    wire::Reader in(body);
    wire::Writer out(connection.fields);
    result = entry.run(*this, in, out);
    if (result == malformed) return false;
  } else if (header.message == static_cast<std::uint16_t>(MessageId::MapMemory)) {
    // The client counts on this mapping: it is made up for when the session has a lease again.
    messages::MapMemory wanted;
    wire::Reader in(body);
    if (!messages::MapMemory::decode(in, wanted) || refused_maps_.size() >= 4096) return false;
    refused_maps_.push_back({wanted.device, wanted.address, wanted.size});
  }
  if (payload_left_ > 0 && !connection.receiver.skip(payload_left_)) return false;
  payload_left_ = 0;
  if (!ask) {
    state.usage.post();
    if (result != CUDA_SUCCESS) defer(result, header.message);
    return true;
  }
  if (entry.waits && !send_output(connection)) return false;
  state.usage.ask(monotonic_ns() - start);
  return reply(connection, header, result, static_cast<wire::Status>(admission));
}

bool Executor::reply(Connection& connection, const wire::FrameHeader& header, CUresult result,
                     wire::Status status) {
  const bool payload = payload_out_.size > 0 && result == CUDA_SUCCESS && status == wire::Status::ok;
  if (!keep_fields_ && (result != CUDA_SUCCESS || status != wire::Status::ok)) connection.fields.clear();
  const wire::ReplyHeader answer{result, deferred_error_, deferred_message_, status};
  deferred_error_ = CUDA_SUCCESS;
  deferred_message_ = 0;
  wire::FrameHeader frame{};
  frame.length = static_cast<std::uint32_t>(sizeof(frame) + sizeof(answer) + connection.fields.size() +
                                            (payload ? sizeof(std::uint64_t) : 0));
  frame.message = header.message;
  frame.flags = static_cast<std::uint16_t>(wire::flag_reply | (payload ? wire::flag_bulk : 0));
  frame.epoch = header.epoch;
  frame.lane = header.lane;
  frame.sequence = header.sequence;
  connection.frame.clear();
  connection.frame.append(&frame, sizeof(frame));
  connection.frame.append(&answer, sizeof(answer));
  connection.frame.append(connection.fields.data(), connection.fields.size());
  if (payload) connection.frame.append(&payload_out_.size, sizeof(payload_out_.size));
  state.usage.sent(connection.fields.size() + (payload ? payload_out_.size : 0));
  if (payload && payload_out_.memory != nullptr) {  // one system call, and for a small payload one packet
    iovec parts[2] = {{connection.frame.data(), connection.frame.size()},
                      {const_cast<std::byte*>(payload_out_.memory), payload_out_.size}};
    return connection.stream.send_parts(parts, 2);
  }
  if (!connection.stream.send(connection.frame.bytes(), payload)) return false;
  return !payload || payload_out_.send(connection.stream);
}

bool Executor::send_output(Connection& connection) {
  const std::string text = printed_ ? printed_->take() : std::string();
  if (text.empty()) return true;
  const std::uint64_t size = text.size();
  wire::FrameHeader frame{};
  frame.length = sizeof(frame) + sizeof(size);
  frame.message = static_cast<std::uint16_t>(wire::Control::output);
  frame.flags = wire::flag_bulk;
  wire::Buffer out;
  out.append(&frame, sizeof(frame));
  out.append(&size, sizeof(size));
  out.append(text.data(), text.size());
  return connection.stream.send(out.bytes());
}

bool Executor::control(Connection& connection, const wire::FrameHeader& header,
                       std::span<const std::byte> body) {
  if ((header.flags & wire::flag_bulk) != 0) return false;
  const bool ask = (header.flags & wire::flag_ask) != 0;
  wire::Reader in(body);
  wire::Writer out(connection.fields);
  switch (static_cast<wire::Control>(header.message)) {
    case wire::Control::lease: {
      if (!ask || !in.finished()) return false;
      const Admission admission = state.gate.admits(header.epoch, boottime_ns());
      if (admission == Admission::ok) {
        retry_refused_maps();
        wire::LeaseReply answer;
        for (const auto& arena : arenas_) answer.limits.push_back(arena->limit());
        answer.encode(out);
      }
      const CUresult result = admission == Admission::ok ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
      return reply(connection, header, result, static_cast<wire::Status>(admission));
    }
    case wire::Control::drain: {
      in.get<std::uint32_t>();
      if (!ask || !in.finished()) return false;
      CUresult first = CUDA_SUCCESS;
      for (const CUdevice device : devices_) {
        const CUresult result = synchronize_device(device);
        if (first == CUDA_SUCCESS) first = result;
      }
      return send_output(connection) && reply(connection, header, first, wire::Status::ok);
    }
    case wire::Control::stats: {
      const bool reset_peak = in.get<std::uint32_t>() != 0;
      if (!ask || !in.finished()) return false;
      tick();
      wire::StatsReply answer;
      const UsageSnapshot usage = state.usage.snapshot();
      answer.device_ns = usage.device_ns;
      answer.kernels = usage.kernels;
      for (auto& account : state.memory) {
        const auto view = account.view();
        answer.memory_used.push_back(view.used);
        answer.memory_peak.push_back(view.peak);
        if (reset_peak) account.reset_peak();
      }
      answer.encode(out);
      return reply(connection, header, CUDA_SUCCESS, wire::Status::ok);
    }
    case wire::Control::ping:
      if (!ask || !in.finished()) return false;
      return reply(connection, header, CUDA_SUCCESS, wire::Status::ok);
    case wire::Control::goodbye:
      goodbye_ = true;
      return false;
    default:
      return false;
  }
}

bool Executor::take_payload(void* into, std::size_t size) {
  if (size > payload_left_ || !connection_->receiver.take(into, size)) return false;
  payload_left_ -= size;
  return true;
}

bool Executor::drain(int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (std::chrono::steady_clock::now() < deadline) {
    std::unique_lock lock(executing_, std::defer_lock);
    if (!lock.try_lock_until(deadline)) return false;
    const auto pending = [this] {
      const std::lock_guard serving(serving_);
      return served_ != nullptr && served_->holds_unread();
    };
    if (!pending()) {
      if (!timer_) return true;
      timer_->resolve();
      if (!state.usage.in_flight.load()) return true;
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace gpupool::worker
