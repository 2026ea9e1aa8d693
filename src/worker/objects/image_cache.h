// Module images that were sent once, kept on the node under their SHA-256 for later sessions of the same
// user.
//
// A folder of its own per user, mode 0700: a client that can name a digest there has a right to its content.
// The content is checked against the digest whenever it is read, so a damaged file is a miss, never a wrong
// image. Files appear by rename, complete or not at all; several workers use one folder at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/sha256.h"

namespace gpupool::worker {

class ImageCache {
 public:
  struct Limits {
    std::uint64_t bytes = 0;
    std::size_t files = 16384;
    std::uint64_t keep_free = std::uint64_t{1} << 30;  ///< bytes of the disk that others may need
  };
  /// A cache in `folder`; none when that is empty, or when the folder is not this user's alone, which is said
  /// on stderr.
  ImageCache(const std::string& folder, const Limits& limits);
  ~ImageCache();
  ImageCache(const ImageCache&) = delete;
  ImageCache& operator=(const ImageCache&) = delete;

  [[nodiscard]] bool usable() const { return folder_ >= 0; }

  /// Puts the content of `size` bytes and a NUL behind it into `out`; false when it is not there.
  [[nodiscard]] bool load(const Digest& digest, std::uint64_t size, std::vector<std::byte>& out);
  /// Precondition: `digest` is that of `content`. Failing to store is not an error.
  void store(const Digest& digest, std::span<const std::byte> content);

 private:
  [[nodiscard]] bool room_for(std::uint64_t bytes) const;
  void trim();

  int folder_ = -1;
  Limits limits_;
  std::atomic<std::uint64_t> next_name_{0};
  std::mutex trimming_;  // protects the next two
  std::uint64_t bytes_since_trim_;
  std::size_t files_since_trim_ = 0;
};

/// Name of the file that holds the content of this digest.
[[nodiscard]] std::string cache_file_name(const Digest& digest);

}  // namespace gpupool::worker
