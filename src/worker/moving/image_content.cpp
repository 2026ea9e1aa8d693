#include "worker/moving/image_content.h"

#include <algorithm>

#include "protocol/image_cache_rules.h"
#include "worker/conversation/call.h"

namespace gpupool::worker {
namespace {

constexpr std::size_t part_bytes = 1 << 20, trusted_bytes = 64 << 20;

std::span<const std::byte> without_end(std::span<const std::byte> bytes) {
  return bytes.first(bytes.size() - 1);
}

}  // namespace

CUresult SentContent::take(Call& x, bool (*stays_inside)(std::span<const std::byte>)) {
  if (x.payload_left() == 0 || x.payload_left() > max_image) return CUDA_ERROR_INVALID_IMAGE;
  const bool hashed = x.equipment.image_cache.usable() && x.payload_left() >= min_cached_image;
  // In parts: the digest is made while the next bytes arrive, and memory is taken for what has come, not for
  // what was announced.
  Sha256 hash;
  held.reserve(static_cast<std::size_t>(std::min<std::uint64_t>(x.payload_left(), trusted_bytes)) + 1);
  for (std::size_t at = 0; x.payload_left() > 0;) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(x.payload_left(), part_bytes));
    held.resize(at + size);
    if (!x.take_payload(held.data() + at, size)) return CUDA_ERROR_INVALID_IMAGE;
    if (hashed) hash.update(std::span(held).subspan(at, size));
    at += size;
  }
  held.push_back(std::byte{0});
  if (hashed) digest_ = hash.finish();
  return stays_inside(held) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

void SentContent::keep(ImageCache& cache) {
  const auto content = without_end(held);
  if (content.size() >= min_cached_image) cache.store(digest_, content);
}

CUresult CachedContent::find(ImageCache& cache, std::span<const std::byte> digest, std::uint64_t size,
                             std::uint8_t& answer) {
  Digest wanted;
  if (digest.size() != wanted.size() || size < min_cached_image || size > max_image) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::copy(digest.begin(), digest.end(), wanted.begin());
  const auto said = !cache.usable()                  ? CacheAnswer::no_cache
                    : cache.load(wanted, size, held) ? CacheAnswer::found
                                                     : CacheAnswer::missing;
  answer = static_cast<std::uint8_t>(said);
  return CUDA_SUCCESS;
}

CUresult MovedContent::take(Call&, bool (*stays_inside)(std::span<const std::byte>)) {
  return !held.empty() && stays_inside(held) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

CUresult CachedContent::take(Call&, bool (*stays_inside)(std::span<const std::byte>)) {
  return stays_inside(held) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

}  // namespace gpupool::worker
