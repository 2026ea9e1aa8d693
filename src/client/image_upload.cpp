#include "client/image_upload.h"

#include <atomic>

#include "client/runtime.h"
#include "protocol/image_cache_rules.h"

namespace gpupool::client {
namespace {

/// A process has one worker, and a worker that has no cache gets none.
std::atomic<bool> worker_has_no_cache{false};

}  // namespace

ImageUpload::ImageUpload(const void* start, std::size_t size)
    : content_(static_cast<const std::byte*>(start), size),
      by_digest_(size >= min_cached_image && !worker_has_no_cache.load(std::memory_order_relaxed)) {
  if (by_digest_) digest_ = sha256(content_);
}

bool ImageUpload::found(std::uint8_t answer) const {
  if (answer == static_cast<std::uint8_t>(CacheAnswer::found)) {
    runtime().counters.image_found(content_.size());
    return true;
  }
  if (answer == static_cast<std::uint8_t>(CacheAnswer::no_cache)) worker_has_no_cache.store(true);
  return false;
}

void ImageUpload::sends() const {
  runtime().counters.image_sent(content_.size());
}

}  // namespace gpupool::client
