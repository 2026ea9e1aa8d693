// The bytes of a module image or of a link input: sent by the client, or found in the node's cache.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/sha256.h"

namespace gpupool::worker {

class Call;
class ImageCache;

inline constexpr std::uint64_t max_image = std::uint64_t{1} << 30;

class ImageContent {
 public:
  virtual ~ImageContent() = default;

  /// Makes bytes() what the driver may read: `stays_inside` says whether the driver would read past their
  /// end.
  virtual CUresult take(Call& x, bool (*stays_inside)(std::span<const std::byte>)) = 0;
  /// With a NUL behind them, because drivers read PTX as a C string. Not const: cuLinkAddData is not.
  [[nodiscard]] std::span<std::byte> bytes() { return held; }
  /// The driver has accepted them: they are worth keeping.
  virtual void keep(ImageCache& cache) = 0;
  /// The bytes themselves; bytes() is empty then.
  [[nodiscard]] std::vector<std::byte> give_away() { return std::move(held); }

 protected:
  std::vector<std::byte> held;
};

/// The payload of the request being executed.
class SentContent final : public ImageContent {
 public:
  CUresult take(Call& x, bool (*stays_inside)(std::span<const std::byte>)) override;
  void keep(ImageCache& cache) override;

 private:
  Digest digest_{};
};

class CachedContent final : public ImageContent {
 public:
  /// `answer` is the CacheAnswer for the client; an error only for a digest that is none.
  CUresult find(ImageCache& cache, std::span<const std::byte> digest, std::uint64_t size,
                std::uint8_t& answer);
  CUresult take(Call& x, bool (*stays_inside)(std::span<const std::byte>)) override;
  void keep(ImageCache&) override {}
};

/// What the session had loaded in the worker that it comes from.
class MovedContent final : public ImageContent {
 public:
  /// With a NUL behind them.
  explicit MovedContent(std::vector<std::byte> bytes) { held = std::move(bytes); }
  CUresult take(Call& x, bool (*stays_inside)(std::span<const std::byte>)) override;
  void keep(ImageCache&) override {}
};

/// Executes a LoadImage of a session's journal; `bytes` have a NUL behind them, `kernels` are the names in
/// the client's order.
CUresult load_moved_image(Call& x, std::span<const std::byte> body, std::vector<std::byte> bytes,
                          const std::vector<std::string>& kernels);

}  // namespace gpupool::worker
