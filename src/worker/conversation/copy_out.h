// Reading device memory on the way to a client, beside the thread that executes calls.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "wire/transport/stream.h"
#include "worker/conversation/waiting_call.h"
#include "worker/driver/driver.h"
#include "worker/objects/staging.h"

namespace gpupool::worker {

/// What is read: rows of `width` bytes, `pitch` apart, in planes `slice_pitch` apart. A plain range is one
/// row.
struct DeviceBlock {
  std::uint64_t address = 0;
  std::uint64_t width = 0;
  std::uint64_t pitch = 0, height = 1;
  std::uint64_t slice_pitch = 0, depth = 1;

  [[nodiscard]] std::uint64_t size() const { return width * height * depth; }
};

/// Staging memory for reads, and a stream for them in each context. A stream of their own: the work that a
/// read must see is complete before it begins, and what others give to the program's streams meanwhile must
/// not delay bytes that have been announced. One read at a time, since there is one connection.
class CopyOut {
 public:
  /// `home` owns the staging memory: a context that lives as long as the session.
  CopyOut(const DriverApi& api, CUcontext home) : api_(api), home_(home) {}
  ~CopyOut();
  CopyOut(const CopyOut&) = delete;
  CopyOut& operator=(const CopyOut&) = delete;

  /// Before `context` is destroyed; no read of it may be under way.
  void forget(CUcontext context);

  class Read;

 private:
  const DriverApi& api_;
  CUcontext home_;
  std::mutex mutex_;  // held by the one read under way; protects the rest
  std::optional<Staging> staging_;
  std::map<CUcontext, CUstream> streams_;
};

/// One read. Holds the staging memory from start() until it is destroyed.
class CopyOut::Read {
 public:
  /// `context` must be current wherever the functions are called.
  Read(CopyOut& from, CUcontext context, const DeviceBlock& block)
      : from_(from), context_(context), block_(block) {}

  /// Fetches the first part, so that an address that cannot be read is known before anything is promised.
  CUresult start();
  /// Sends everything. False when the client is gone or the device failed.
  bool send(wire::Stream& client);

 private:
  CUresult fetch(std::size_t chunk);
  [[nodiscard]] bool fetched_all() const { return plane_ == block_.depth; }

  CopyOut& from_;
  CUcontext context_;
  DeviceBlock block_;
  std::unique_lock<std::mutex> turn_;
  CUstream stream_ = nullptr;
  std::uint64_t column_ = 0, row_ = 0, plane_ = 0;  ///< of the part to be fetched next
  std::uint64_t sizes_[2] = {0, 0};                 ///< of what is in the chunks
};

/// The payload of an answer: the block, read as it is sent. `context` is current; work that the read must see
/// is complete.
CUresult answer_with_block(CopyOut& from, CUcontext context, const DeviceBlock& block, Answer& answer);

}  // namespace gpupool::worker
