// A session image on disk: a folder with a file of chunks and a manifest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "wire/transport/socket.h"
#include "worker/image/chunk_source.h"

namespace gpupool::worker {

/// Writes one. A folder before finish() has returned is no image: the manifest appears last and whole.
class ImageFolderWriter {
 public:
  /// Makes the folder if there is none, mode 0700. Throws std::runtime_error, also when it holds an image.
  explicit ImageFolderWriter(const std::string& folder);
  /// Removes what it wrote, unless it has been finished.
  ~ImageFolderWriter();
  ImageFolderWriter(const ImageFolderWriter&) = delete;
  ImageFolderWriter& operator=(const ImageFolderWriter&) = delete;

  /// Behind those before it.
  void append(std::span<const std::byte> chunk);
  /// When this returns, all of it is on the disk.
  void finish(std::span<const std::byte> manifest);

 private:
  std::string path_;
  wire::Socket folder_, chunks_;  // file descriptors
  std::uint64_t written_ = 0;
  bool finished_ = false;
};

/// Reads one.
class ImageFolder final : public ChunkSource {
 public:
  /// Throws std::runtime_error when there is no image, or the manifest is not one.
  explicit ImageFolder(const std::string& folder);

  [[nodiscard]] const SessionImage& image() const { return image_; }
  void announce(const std::vector<std::uint32_t>& numbers) override;
  void read(const SessionImage::Chunk& chunk, std::uint32_t number, std::span<std::byte> into) override;

 private:
  std::string path_;
  wire::Socket chunks_;
  SessionImage image_;
};

}  // namespace gpupool::worker
