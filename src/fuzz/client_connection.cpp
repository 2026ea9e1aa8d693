// The client's end of a connection to a worker that says anything: answers to HELLO and to calls, and what is
// told unasked.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/link/connection.h"
#include "client/memory/arriving_copies.h"
#include "client/memory/device_memory.h"
#include "client/news/share_news.h"
#include "client/progress/completion.h"
#include "client/session/worker_link.h"
#include "fuzz/frame_script.h"
#include "fuzz/memory_stream.h"

using namespace gpupool;

namespace {

/// A payload's place that takes at most a megabyte.
class Bounded final : public client::PayloadSink {
 public:
  bool take(wire::Receiver& receiver, std::uint64_t size) override {
    if (size > (1u << 20)) return false;
    std::vector<std::byte> into(static_cast<std::size_t>(size));
    return receiver.take(into.data(), into.size());
  }
};

/// Replies in the order of the asks, unless the script says otherwise.
class WorkerReplies {
 public:
  bool operator()(const fuzz::FrameRecord& record, wire::FrameHeader& header) {
    const auto control = static_cast<wire::Control>(record.message);
    const bool carries = control == wire::Control::output || control == wire::Control::copied;
    const bool pushed =
        sequence_ != 0 && (carries || control == wire::Control::completed ||
                           control == wire::Control::acknowledged || control == wire::Control::charged ||
                           control == wire::Control::memory_refused || control == wire::Control::share_limit);
    header.message = sequence_ == 0 ? 1 : static_cast<std::uint16_t>(wire::first_call + record.message % 4);
    if (pushed) {
      header.message = record.message;
      header.flags = carries ? wire::flag_bulk : 0;
      if (control != wire::Control::acknowledged) header.sequence = ++pushed_;
    } else {
      header.flags = wire::flag_reply;
      header.sequence = ++sequence_;
      if (record.message >= 128) header.flags |= wire::flag_bulk;
    }
    return (header.flags & wire::flag_bulk) != 0;
  }

 private:
  std::uint64_t sequence_ = 0;
  std::uint64_t pushed_ = 0;
};

/// What the worker may tell of: a device, a stream, an event, a context. The same handles for every input.
struct Objects {
  Objects() {
    worker.devices = 1;
    std::string error;
    wire::ArenaDescription arena{};
    arena.base = std::uint64_t{5} << 44;  // AddressSanitizer has its memory at 6 << 44
    arena.size = std::uint64_t{1} << 30;
    arena.granularity = std::uint64_t{2} << 20;
    arena.limit = std::uint64_t{1} << 29;
    if (!memory.open({arena}, error)) std::abort();
    client::Stream* stream = nullptr;
    client::Event* event = nullptr;
    client::Context* context = nullptr;
    client::tables().streams.mint(stream);
    client::tables().events.mint(event);
    client::tables().contexts.mint_at(0, context);
    // What kernels print goes to the program's own output, which is no part of this.
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
  }

  client::WorkerLink worker;
  client::DeviceMemory memory;
};

/// Pieces of copies that are under way, each for memory of exactly its size.
class Pieces {
 public:
  Pieces(client::Connection& connection, const client::WorkerLink& worker) {
    copies_.listen(connection, worker);
    for (const std::size_t size : {1, 100, 4096, 30'000}) {
      memory_.emplace_back(size);
      std::uint64_t ticket = 0;
      if (!copies_.reserve({memory_.back().data(), size, 0, 0, 0, worker.index}, ticket)) std::abort();
    }
  }

 private:
  client::ArrivingCopies copies_;
  std::vector<std::vector<std::byte>> memory_;
};

void ask(client::Connection& connection) {
  const auto encode = [](wire::Writer& out) { out.put(std::uint32_t{1}); };
  for (std::uint16_t n = 0; n < 6; ++n) {
    client::Reply reply;
    Bounded sink;
    const client::Outgoing out{static_cast<std::uint16_t>(wire::first_call + n % 4), 7};
    if (n % 3 == 2 && connection.post(out, encode) == 0) return;
    if (n == 4) connection.read_arrived();
    if (!connection.ask(out, encode, reply, n % 2 == 0 ? &sink : nullptr)) return;
    static_cast<void>(connection.take_deferred());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Objects objects;
  const auto bytes = fuzz::frames_of(std::as_bytes(std::span(data, size)), WorkerReplies{}, std::byte{'x'});
  wire::HelloReply answer;
  std::string error;
  const auto connection =
      client::Connection::over(std::make_unique<fuzz::MemoryStream>(bytes), {}, answer, error);
  if (connection == nullptr) return 0;
  const client::WorkerLink& worker = objects.worker;
  client::listen_for_completions(*connection, worker);
  client::listen_for_share_news(*connection, objects.memory, worker);
  client::note_watch(worker);
  const Pieces pieces(*connection, worker);
  ask(*connection);
  return 0;
}
