// A session goes from one worker to another over an ordinary connection.
//
// The new worker says Control::session with the body of HELLO. From then on all frames are of that message:
//
//   old -> new   reply: refused {text why}, or the manifest as payload
//   new -> old   ask {u32 numbers of chunks...}: any number of times
//   old -> new   for each of them a reply with the chunk as payload, `sequence` its number
//   new -> old   post {}: the session lives here now
//   old -> new   reply {}: it has stood still here since the manifest, and goes on doing so
//
// A connection that ends before that leaves the session where it was.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "wire/receiver.h"
#include "wire/transport/stream.h"
#include "worker/image/chunk_source.h"
#include "worker/lease/worker_state.h"

namespace gpupool::worker {

class SessionWriter;

/// The side that has the session.
class SessionSender {
 public:
  explicit SessionSender(wire::Stream& stream) : stream_(stream), receiver_(stream) {}

  /// Until the other one says that it has the session: then nothing is refused. `cancelled` is asked at every
  /// chunk.
  MoveResult send(SessionWriter& writer, const std::function<bool()>& cancelled);
  /// The last word. After this the session stands still here, if `refusal` is empty.
  void conclude(const std::string& refusal);

 private:
  bool reply(std::uint64_t sequence, const std::string& refusal, std::span<const std::byte> payload);

  wire::Stream& stream_;
  wire::Receiver receiver_;
};

/// The side that gets it.
class SessionFetcher final : public ChunkSource {
 public:
  /// Fetches the manifest from the worker at `address`. Throws std::runtime_error; the key is in no
  /// message.
  SessionFetcher(const std::string& address, const std::array<std::uint8_t, 32>& move_key,
                 const std::array<std::uint8_t, 16>& session);
  /// The same from a worker that has been told Control::session over this stream.
  explicit SessionFetcher(std::unique_ptr<wire::Stream> stream);

  [[nodiscard]] const SessionImage& image() const { return image_; }
  void announce(const std::vector<std::uint32_t>& numbers) override;
  void read(const SessionImage::Chunk& chunk, std::uint32_t number, std::span<std::byte> into) override;
  /// From here on the session is this worker's: the other one has heard it. Throws std::runtime_error.
  void take_over();

 private:
  /// The size of the payload of the reply.
  std::uint64_t receive_reply(std::uint64_t sequence);

  std::unique_ptr<wire::Stream> stream_;
  wire::Receiver receiver_;
  SessionImage image_;
};

}  // namespace gpupool::worker
