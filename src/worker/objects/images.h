// Loaded modules and libraries with their kernels.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "protocol/kernel_info.h"
#include "worker/driver/driver.h"
#include "worker/lease/memory_account.h"

namespace gpupool::worker {

/// What an image takes of a share, for as long as it is loaded.
class ImageCharge {
 public:
  ImageCharge() = default;
  ~ImageCharge() {
    if (account_ != nullptr) account_->release_beside(bytes_);
  }
  ImageCharge(const ImageCharge&) = delete;
  ImageCharge& operator=(const ImageCharge&) = delete;
  /// Once. False over the share.
  [[nodiscard]] bool reserve(MemoryAccount& account, std::uint64_t bytes) {
    if (!account.reserve_beside(bytes)) return false;
    account_ = &account;
    bytes_ = bytes;
    return true;
  }
  /// The share had room for it, the device had not.
  void refused() {
    if (account_ != nullptr) account_->refused(bytes_);
  }

 private:
  MemoryAccount* account_ = nullptr;
  std::uint64_t bytes_ = 0;
};

struct Image {
  ImageCharge charge;
  bool managed_memory = false;  ///< the driver moves some of its variables between host and device
  bool is_library = false;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  std::vector<CUfunction> functions;  ///< of a module
  std::vector<CUkernel> kernels;      ///< of a library
  std::vector<KernelInfo>
      infos;  ///< same order; not resized after loading, so that pointers to its elements hold
  std::vector<std::uint64_t> bound;  ///< handles that the client made for them
  /// What was loaded, with a NUL behind it: to load it again where the session moves to.
  std::shared_ptr<const std::vector<std::byte>> content;
};

/// By the client's handle of the module or library.
using ImageTable = std::map<std::uint64_t, std::unique_ptr<Image>>;

/// Asks the driver for the kernels of a loaded image and their names.
CUresult enumerate_kernels(const DriverApi& api, Image& image);
/// Puts the kernels into the order of `names`, so that the client's numbers for them hold. False when they
/// are not the same kernels.
[[nodiscard]] bool order_kernels(Image& image, const std::vector<std::string>& names);
/// Fills in layout and attributes of kernel `n` if they are not there yet.
CUresult describe_kernel(const DriverApi& api, Image& image, std::size_t n, CUdevice device);

}  // namespace gpupool::worker
