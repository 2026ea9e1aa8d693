#include "worker/conversation/copy_out.h"

#include <algorithm>
#include <memory>

namespace gpupool::worker {

CopyOut::~CopyOut() {
  while (!streams_.empty()) forget(streams_.begin()->first);
}

void CopyOut::forget(CUcontext context) {
  const std::lock_guard lock(mutex_);
  if (staging_) staging_->forget(context);
  const auto found = streams_.find(context);
  if (found == streams_.end()) return;
  api_.cuStreamDestroy_v2_(found->second);
  streams_.erase(found);
}

CUresult CopyOut::Read::start() {
  turn_ = std::unique_lock(from_.mutex_);
  if (!from_.staging_) {
    from_.api_.cuCtxSetCurrent_(from_.home_);
    from_.staging_.emplace(from_.api_);
    from_.api_.cuCtxSetCurrent_(context_);
  }
  CUstream& stream = from_.streams_[context_];
  if (stream == nullptr) {
    const CUresult result = from_.api_.cuStreamCreate_(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) {
      from_.streams_.erase(context_);
      return result;
    }
  }
  stream_ = stream;
  // Once a long payload has begun an error can no longer be answered, so its last byte is tried too.
  if (block_.size() > Staging::chunk_bytes) {
    std::byte* chunk = nullptr;
    if (const CUresult bad = from_.staging_->chunk(0, chunk); bad != CUDA_SUCCESS) return bad;
    const CUdeviceptr last = block_.address + (block_.depth - 1) * block_.slice_pitch +
                             (block_.height - 1) * block_.pitch + block_.width - 1;
    const CUresult bad = from_.api_.cuMemcpyDtoHAsync_v2_(chunk, last, 1, stream_);
    if (bad != CUDA_SUCCESS) return bad;
  }
  const CUresult result = fetch(0);
  return result == CUDA_SUCCESS ? from_.staging_->wait(0) : result;
}

CUresult CopyOut::Read::fetch(std::size_t n) {
  Staging& staging = *from_.staging_;
  std::byte* chunk = nullptr;
  if (const CUresult bad = staging.chunk(n, chunk); bad != CUDA_SUCCESS) return bad;
  const std::uint64_t width = std::min<std::uint64_t>(block_.width - column_, Staging::chunk_bytes);
  // Several rows at once where they fit whole.
  const std::uint64_t rows =
      block_.width <= Staging::chunk_bytes
          ? std::min(block_.height - row_, std::max<std::uint64_t>(1, Staging::chunk_bytes / block_.width))
          : 1;
  const CUdeviceptr at = block_.address + plane_ * block_.slice_pitch + row_ * block_.pitch + column_;
  CUresult result;
  if (rows == 1) {
    result = from_.api_.cuMemcpyDtoHAsync_v2_(chunk, at, width, stream_);
  } else {
    CUDA_MEMCPY2D copy{};
    copy.WidthInBytes = width;
    copy.Height = rows;
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = at;
    copy.srcPitch = block_.pitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = chunk;
    copy.dstPitch = width;
    result = from_.api_.cuMemcpy2DAsync_v2_(&copy, stream_);
  }
  if (result == CUDA_SUCCESS) result = staging.used(n, context_, stream_);
  if (result != CUDA_SUCCESS) return result;
  sizes_[n] = width * rows;
  column_ += width;
  if (column_ < block_.width) return CUDA_SUCCESS;
  column_ = 0;
  row_ += rows;
  if (row_ < block_.height) return CUDA_SUCCESS;
  row_ = 0;
  ++plane_;
  return CUDA_SUCCESS;
}

CUresult answer_with_block(CopyOut& from, CUcontext context, const DeviceBlock& block, Answer& answer) {
  auto read = std::make_shared<CopyOut::Read>(from, context, block);
  if (const CUresult bad = read->start(); bad != CUDA_SUCCESS) return bad;
  answer.payload = {block.size(), nullptr, [read](wire::Stream& client) { return read->send(client); }};
  return CUDA_SUCCESS;
}

bool CopyOut::Read::send(wire::Stream& client) {
  for (std::size_t n = 0;; n ^= 1) {
    if (from_.staging_->wait(n) != CUDA_SUCCESS) return false;
    const bool last = fetched_all();
    if (!last && fetch(n ^ 1) != CUDA_SUCCESS) return false;
    if (!client.send({from_.staging_->memory(n), sizes_[n]})) return false;
    if (last) return true;
  }
}

}  // namespace gpupool::worker
