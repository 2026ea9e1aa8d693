// What the checks remember of the block that runs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "softgpu/exec/checks/race_detector.h"
#include "softgpu/exec/program/checks.h"

namespace softgpu {

struct Block;
struct Group;
struct Instruction;
struct Warp;

class BlockChecks {
 public:
  BlockChecks(const Checks& checks, uint32_t shared_bytes, uint32_t threads);

  // A block begins.
  void start();

  // The lanes of `members` have come to a .sync instruction together.
  void warp_synchronised(const Warp& warp, uint32_t members);
  // A .sync instruction goes on although `missing` lanes of its mask will not come. May raise a fault.
  void lanes_missing(Warp& warp, const Instruction& in, uint32_t missing) const;
  // Lanes of the warp have come to a barrier of the block, whether they wait or only arrive.
  void arrived(const Warp& warp, uint32_t barrier);
  // Lanes wait for a barrier at which they arrived before, and which has opened since.
  void passed(const Warp& warp, uint32_t barrier, uint32_t lanes);
  // The barrier is about to open; its waiting groups still wait. The fault that this is, if it is one: the
  // text is then the launch's, and the caller must leave.
  [[nodiscard]] bool open(Block& block, uint32_t barrier, bool counted);

  // Shared memory that the block has written.
  void written(uint64_t offset, uint32_t bytes);
  [[nodiscard]] std::optional<uint64_t> first_unwritten(uint64_t offset, uint32_t bytes) const;

  const Checks checks;
  RaceDetector races;

 private:
  uint32_t serial_ = 0;
  std::vector<uint32_t> written_in_;  // per byte of shared memory: serial of the block that wrote it last
};

}  // namespace softgpu
