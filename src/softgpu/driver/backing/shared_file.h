// Device memory in a file of its own, so that another process can map it: what cuMemExportToShareableHandle
// hands out. The operating system counts who still uses it, so it outlives the process that made it.
#pragma once

#include <cstddef>
#include <optional>

namespace softgpu::driver {

class SharedFile {
 public:
  // Zeroed memory of a card. Nothing when the process has few file descriptors left: then memory that
  // cannot be shared has to do.
  static std::optional<SharedFile> make(int card, std::size_t size);
  // A duplicate of what another process made. Throws Error(INVALID_HANDLE) for any other descriptor.
  static SharedFile adopt(int descriptor);

  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&&) = delete;
  ~SharedFile();

  int card() const { return card_; }
  std::size_t size() const { return size_; }
  int descriptor() const { return descriptor_; }
  // For another process. Throws Error(OPERATING_SYSTEM).
  int duplicate() const;

 private:
  SharedFile(int descriptor, int card, std::size_t size)
      : descriptor_(descriptor), card_(card), size_(size) {}

  int descriptor_;
  int card_;
  std::size_t size_;
};

}  // namespace softgpu::driver
