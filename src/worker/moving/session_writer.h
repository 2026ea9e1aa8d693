// Writes a session down: what a worker needs to go on with it in the place of this one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/image/chunk_table.h"
#include "worker/image/session_image.h"
#include "worker/moving/device_bytes.h"

namespace gpupool::worker {

class Conversation;
class Session;
struct Equipment;

/// The session must stand still for as long as this lives: no call is executed, and all work is complete.
class SessionWriter {
 public:
  /// Throws std::runtime_error.
  explicit SessionWriter(Conversation& conversation);
  ~SessionWriter();
  SessionWriter(const SessionWriter&) = delete;
  SessionWriter& operator=(const SessionWriter&) = delete;

  /// Reads all bytes once and completes the image; `fresh` is given each chunk, in the order of their
  /// numbers. `cancelled` is asked at each piece that is read: throws std::runtime_error when it says so.
  void read_all(const std::function<void(std::span<const std::byte>)>& fresh,
                const std::function<bool()>& cancelled);
  /// A chunk once more. Precondition: read_all.
  void read_again(std::uint32_t number, const std::function<void(std::span<const std::byte>)>& use);

  [[nodiscard]] const SessionImage& image() const { return image_; }

 private:
  /// Bytes of the session: on a device, or in this process.
  struct Source {
    SessionImage::Bytes* into = nullptr;
    DeviceRange device;
    std::span<const std::byte> here;

    [[nodiscard]] std::uint64_t size() const { return device.size != 0 ? device.size : here.size(); }
  };

  void collect_devices();
  void collect_memory();
  void collect_calls();
  void collect_variables();
  void collect_variable(std::uint64_t image, std::uint64_t context, const std::string& name);
  void collect_link();
  void read(const Source& source, std::uint64_t offset, std::uint64_t size,
            const std::function<void(std::span<const std::byte>)>& use);

  Conversation& conversation_;
  Session& session_;
  Equipment& equipment_;
  SessionImage image_;
  wire::Buffer link_;
  std::deque<DeviceWindow> windows_;
  std::vector<Source> sources_;
  /// By number: where a chunk was met first.
  std::vector<std::pair<std::size_t, std::uint64_t>> met_;
};

}  // namespace gpupool::worker
