// Whether the bytes of a module image travel: an image that lies in the node's cache is only named.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/sha256.h"

namespace gpupool::client {

struct WorkerLink;

/// On its way to one worker.
class ImageUpload {
 public:
  ImageUpload(const void* start, std::size_t size, const WorkerLink& worker);

  /// The worker is asked by digest first: one more round trip when it does not know it, none when it does.
  [[nodiscard]] bool by_digest() const { return by_digest_; }
  [[nodiscard]] std::uint64_t size() const { return content_.size(); }
  [[nodiscard]] std::span<const std::byte> digest() const { return digest_; }
  /// Takes the worker's CacheAnswer; true when the bytes are not needed.
  [[nodiscard]] bool found(std::uint8_t answer) const;
  /// Before the bytes are sent.
  void sends() const;

 private:
  std::span<const std::byte> content_;
  const WorkerLink& worker_;
  bool by_digest_;
  Digest digest_{};
};

}  // namespace gpupool::client
