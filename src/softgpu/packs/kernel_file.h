// The PTX of one fat binary's kernels, as `gpupool kernel-packs build` wrote it.
//
// The file: a line `gpupool-kernels 1`; a line `OFFSET SIZE PLAIN_SIZE NAME` for each kernel and each
// variable that kernels share, in bytes from the end of the table; an empty line, which ends the table; zstd
// frames. What shares variables shares a frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace softgpu::packs {

struct Frame {
  std::uint64_t offset = 0, size = 0, plain_size = 0;  // bytes

  friend bool operator==(const Frame&, const Frame&) = default;
};

struct PackedName {
  std::string name;
  std::size_t frame = 0;  // in KernelFile::frames()
};

// Immutable; may be read by several threads at once.
class KernelFile {
 public:
  // Null, with the reason in `problem`, if the file cannot be read or is damaged.
  static std::shared_ptr<const KernelFile> open(const std::string& path, std::string& problem);
  ~KernelFile();
  KernelFile(const KernelFile&) = delete;
  KernelFile& operator=(const KernelFile&) = delete;

  [[nodiscard]] const std::vector<PackedName>& names() const { return names_; }
  [[nodiscard]] const std::vector<Frame>& frames() const { return frames_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // The text of a frame. Empty if it is damaged.
  [[nodiscard]] std::string ptx(std::size_t frame) const;

 private:
  KernelFile(std::string path, int file) : path_(std::move(path)), file_(file) {}
  bool read_table(std::string& problem);
  bool add(std::string_view line, std::uint64_t bytes);

  const std::string path_;
  const int file_;
  std::uint64_t frames_at_ = 0;  // in the file
  std::vector<Frame> frames_;
  std::vector<PackedName> names_;
};

}  // namespace softgpu::packs
