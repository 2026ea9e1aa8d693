// One piece of a plan that is under way: its blocks in host memory.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "libraries/nccl/plan.h"

namespace gpupool::nccl {

/// The context of the plan's communicator is current in all of its functions, which throw Failure.
class Step {
 public:
  /// Elements [begin, begin + count) of all blocks.
  Step(const Plan& plan, int rank, std::size_t begin, std::size_t count);

  /// Waits for the plan's stream, copies what goes to host memory and gives all of it to the mesh. `stopped`
  /// is asked while it waits: whether the program has aborted what the step belongs to.
  void start(Mesh& mesh, const std::function<bool()>& stopped);
  [[nodiscard]] bool is_done() const;
  /// Copies what came to device memory, in the stream.
  void finish();

  /// As many elements of a plan as a step takes.
  static std::size_t most_elements(Type type) { return most_bytes / size_of(type); }

 private:
  using Block = std::vector<std::byte>;

  void wait_for_stream(const std::function<bool()>& stopped) const;
  void copy_to_device(CUdeviceptr block, const Block& bytes) const;

  const Plan& plan_;
  int rank_;
  std::size_t offset_;  ///< in bytes
  std::size_t count_;
  std::map<CUdeviceptr, Block> sources_;
  std::map<int, Block> arrived_;
  std::deque<Incoming> incoming_;
  std::deque<Outgoing> outgoing_;
};

}  // namespace gpupool::nccl
