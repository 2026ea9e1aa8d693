#include "client/objects/image_upload.h"

#include <array>
#include <atomic>

#include "client/process/session_belongings.h"
#include "client/session/runtime.h"
#include "protocol/image_cache_rules.h"

namespace gpupool::client {
namespace {

using OfWorkers = std::array<std::atomic<bool>, SessionFile::max_workers>;

/// A worker that has no cache gets none.
OfWorkers& has_no_cache() {
  static OfWorkers& all = kept_for_session<OfWorkers>([](OfWorkers& kept) {
    for (auto& one : kept) one.store(false);
  });
  return all;
}

}  // namespace

ImageUpload::ImageUpload(const void* start, std::size_t size, const WorkerLink& worker)
    : content_(static_cast<const std::byte*>(start), size),
      worker_(worker),
      by_digest_(size >= min_cached_image && !has_no_cache()[worker.index].load(std::memory_order_relaxed)) {
  if (by_digest_) digest_ = sha256(content_);
}

bool ImageUpload::found(std::uint8_t answer) const {
  if (answer == static_cast<std::uint8_t>(CacheAnswer::found)) {
    runtime().counters.image_found(content_.size());
    return true;
  }
  if (answer == static_cast<std::uint8_t>(CacheAnswer::no_cache)) has_no_cache()[worker_.index].store(true);
  return false;
}

void ImageUpload::sends() const {
  runtime().counters.image_sent(content_.size());
}

}  // namespace gpupool::client
