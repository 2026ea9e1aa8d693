#include "softgpu/exec/checks/block_checks.h"

#include <algorithm>
#include <bit>
#include <string>

#include "softgpu/exec/checks/fault_text.h"
#include "softgpu/exec/checks/waiting_threads.h"
#include "softgpu/exec/run/block.h"

namespace softgpu {
namespace {

uint64_t object_of(uint32_t barrier) {
  return uint64_t{1} << 63 | barrier;  // no address
}

}  // namespace

BlockChecks::BlockChecks(const Checks& wanted, uint32_t shared_bytes, uint32_t threads)
    : checks(wanted),
      races(wanted.race ? shared_bytes : 0, threads),
      written_in_(wanted.initialised ? shared_bytes : 0) {}

void BlockChecks::start() {
  ++serial_;
  if (checks.race) races.reset();
}

void BlockChecks::warp_synchronised(const Warp& warp, uint32_t members) {
  if (checks.race) races.synchronise_warp(warp.index * warp_lanes, members);
}

void BlockChecks::lanes_missing(Warp& warp, const Instruction& in, uint32_t missing) const {
  if (!checks.barrier) return;
  {
    const Block& block = *warp.block;
    const auto lane = static_cast<uint32_t>(std::countr_zero(warp.mask));
    std::string text = "a .sync instruction of a warp waits for lanes that do not come (" +
                       where_text(block, warp.index * warp_lanes + lane, &in) + "): ";
    text +=
        std::to_string(std::popcount(missing)) + (missing & warp.live ? " of them " : " of them have ended");
    if (missing & warp.live) text += "wait elsewhere: " + waiting_text(block);
    block.launch.set_fault(Fault::check_failed, text);
  }
  siglongjmp(*fault_guard().escape, 1);
}

void BlockChecks::arrived(const Warp& warp, uint32_t barrier) {
  if (!checks.race) return;
  for (uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
    races.release(object_of(barrier),
                  warp.index * warp_lanes + static_cast<uint32_t>(std::countr_zero(rest)));
  }
  races.advance();
}

void BlockChecks::passed(const Warp& warp, uint32_t barrier, uint32_t lanes) {
  if (!checks.race) return;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    races.acquire(object_of(barrier),
                  warp.index * warp_lanes + static_cast<uint32_t>(std::countr_zero(rest)));
  }
}

bool BlockChecks::open(Block& block, uint32_t barrier, bool counted) {
  uint32_t waiting = 0, divided_warp = no_index;
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    uint32_t first_pc = no_index;
    for (const Group& group : block.warps[w].groups) {
      if (group.state != GroupState::at_barrier || group.barrier != barrier) continue;
      waiting += static_cast<uint32_t>(std::popcount(group.mask));
      if (first_pc != no_index && first_pc != group.pc) divided_warp = w;
      first_pc = group.pc;
    }
  }
  if (checks.barrier && !counted && (waiting < block.threads || divided_warp != no_index)) {
    std::string text = "barrier " + std::to_string(barrier) + " of kernel " +
                       kernel_text(block.launch.info->name) + ", block " + text_of(block.index) + ", ";
    text += waiting < block.threads
                ? "opens although " + std::to_string(block.threads - waiting) + " of " +
                      std::to_string(block.threads) + " threads have ended without it: "
                : "was reached by lanes of warp " + std::to_string(divided_warp) + " at different places: ";
    block.launch.set_fault(Fault::check_failed, text + waiting_text(block));
    return false;
  }
  if (!checks.race) return true;
  if (waiting == block.live_threads) {
    races.synchronise_block();
    return true;
  }
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    for (const Group& group : block.warps[w].groups) {
      if (group.state != GroupState::at_barrier || group.barrier != barrier) continue;
      for (uint32_t rest = group.mask; rest != 0; rest &= rest - 1) {
        races.acquire(object_of(barrier), w * warp_lanes + static_cast<uint32_t>(std::countr_zero(rest)));
      }
    }
  }
  return true;
}

void BlockChecks::written(uint64_t offset, uint32_t bytes) {
  std::fill_n(written_in_.begin() + static_cast<std::ptrdiff_t>(offset), bytes, serial_);
}

std::optional<uint64_t> BlockChecks::first_unwritten(uint64_t offset, uint32_t bytes) const {
  for (uint64_t at = offset; at < offset + bytes; ++at) {
    if (written_in_[at] != serial_) return at;
  }
  return std::nullopt;
}

}  // namespace softgpu
