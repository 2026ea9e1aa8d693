// Brings a written session back to life in a worker that has served nobody yet.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/image/chunk_source.h"
#include "worker/image/session_image.h"
#include "worker/moving/device_bytes.h"

namespace gpupool::worker {

class Conversation;
class Session;
struct Equipment;

/// Nothing in the image is trusted: it is checked as a client's messages are. A failure leaves a worker that
/// is to be ended; the session lives on in the worker or folder that it comes from.
class SessionResume {
 public:
  SessionResume(Conversation& conversation, const SessionImage& image, ChunkSource& source);
  /// On the thread that will serve the session. Throws std::runtime_error with one clear sentence.
  void run();

 private:
  /// Bytes that a chunk belongs into: on a device, or in this process.
  struct Target {
    const SessionImage::Bytes* bytes = nullptr;
    DeviceRange device;
    std::byte* here = nullptr;
  };

  void check_origin() const;
  void open_devices();
  void make_memory();
  void map_memory();
  void allow_access();
  void fetch_contents();
  void repeat_calls();
  void repeat(const SessionImage::Call& call, std::vector<std::byte> content);
  void find_variables();
  /// Fills all targets; each chunk that they need is read once.
  void fill(const std::vector<Target>& targets);
  void put(const Target& target, std::uint64_t offset, std::span<const std::byte> piece, std::size_t staged);
  void clear(const Target& target, std::uint64_t offset, std::uint64_t size);
  void take_up_link(std::span<const std::byte> bytes);

  Conversation& conversation_;
  Session& session_;
  Equipment& equipment_;
  const SessionImage& image_;
  ChunkSource& source_;
  std::vector<std::shared_ptr<PhysicalMemory>> memory_;  // as in the image
  std::deque<DeviceWindow> windows_;
  std::vector<std::vector<std::byte>> contents_;  // of the calls that have some, in their order
  std::vector<std::byte> link_;
  std::vector<Target> targets_;
};

}  // namespace gpupool::worker
