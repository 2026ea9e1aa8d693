// Host memory is ordinary: a copy from it has taken the bytes when the call returns, so that a step may end
// with its copies still in the stream.
#include "libraries/nccl/step.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "libraries/nccl/context.h"
#include "libraries/nccl/status.h"

namespace gpupool::nccl {
namespace {

using std::chrono::microseconds;
/// Between two looks at the stream: from short ones, for little work, to long ones.
constexpr microseconds first_pause(20), longest_pause(1000);

}  // namespace

Step::Step(const Plan& plan, int rank, std::size_t begin, std::size_t count)
    : plan_(plan), rank_(rank), offset_(begin * size_of(plan.type)), count_(count) {}

/// The driver's own waiting ends with the work alone, and so does that of a copy behind it. Where the work
/// waits for a rank that is gone, it never ends.
void Step::wait_for_stream(const std::function<bool()>& stopped) const {
  const libraries::Driver& gpu = driver();
  microseconds pause = first_pause;
  for (;;) {
    const CUresult result = gpu.cuStreamQuery(plan_.stream);
    if (result != CUDA_ERROR_NOT_READY) return require_driver(result, "what comes before in the stream");
    require(!stopped(), "the communicator was aborted", invalid_usage);
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, longest_pause);
  }
}

void Step::start(Mesh& mesh, const std::function<bool()>& stopped) {
  const libraries::Driver& gpu = driver();
  if (std::any_of(plan_.to.begin(), plan_.to.end(), [](CUdeviceptr block) { return block != 0; }))
    wait_for_stream(stopped);
  const std::size_t bytes = count_ * size_of(plan_.type);
  for (const CUdeviceptr block : plan_.to) {
    if (block == 0 || sources_.contains(block)) continue;
    Block& copy = sources_[block];
    copy.resize(bytes);
    require_driver(gpu.cuMemcpyDtoHAsync_v2(copy.data(), block + offset_, bytes, plan_.stream),
                   "what a rank gives");
  }
  Factor factor = plan_.factor.value_or(Factor{});
  if (factor.on_device != 0) {
    require_driver(
        gpu.cuMemcpyDtoHAsync_v2(factor.value.data(), factor.on_device, size_of(factor.type), plan_.stream),
        "a factor");
  }
  if (!sources_.empty())
    require_driver(gpu.cuStreamSynchronize(plan_.stream), "the copies of what a rank gives");
  if (plan_.factor) {
    for (auto& [block, bytes_of_it] : sources_)
      multiply(plan_.type, bytes_of_it.data(), count_, factor.value.data());
  }
  for (int rank = 0; rank < static_cast<int>(plan_.from.size()); ++rank) {
    if (plan_.from[static_cast<std::size_t>(rank)] == 0) continue;
    Block& block = arrived_[rank];
    block.resize(bytes);
    mesh.expect(incoming_.emplace_back(Incoming{rank, plan_.lane, block}));
  }
  for (int rank = 0; rank < static_cast<int>(plan_.to.size()); ++rank) {
    const CUdeviceptr block = plan_.to[static_cast<std::size_t>(rank)];
    if (block != 0) mesh.post(outgoing_.emplace_back(Outgoing{rank, plan_.lane, sources_[block]}));
  }
}

bool Step::is_done() const {
  return std::all_of(incoming_.begin(), incoming_.end(), [](const Incoming& one) { return one.done; }) &&
         std::all_of(outgoing_.begin(), outgoing_.end(), [](const Outgoing& one) { return one.done; });
}

void Step::copy_to_device(CUdeviceptr block, const Block& bytes) const {
  require_driver(driver().cuMemcpyHtoDAsync_v2(block + offset_, bytes.data(), bytes.size(), plan_.stream),
                 "what a rank gets");
}

void Step::finish() {
  if (!plan_.reduction) {
    for (const auto& [rank, block] : arrived_) {
      const auto place = static_cast<std::size_t>(rank);
      const bool is_there = rank == rank_ && plan_.to[place] == plan_.from[place];
      if (!is_there) copy_to_device(plan_.from[place], block);
    }
    return;
  }
  if (arrived_.empty()) return;
  std::vector<const std::byte*> arrays;
  for (const auto& [rank, block] : arrived_) arrays.push_back(block.data());
  Block result(count_ * size_of(plan_.type));
  reduce(plan_.type, *plan_.reduction, arrays, count_, result.data());
  copy_to_device(plan_.result, result);
}

}  // namespace gpupool::nccl
