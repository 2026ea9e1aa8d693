#include "softgpu/exec/checks/waiting_threads.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <map>
#include <tuple>
#include <vector>

#include "softgpu/exec/checks/fault_text.h"
#include "softgpu/exec/run/block.h"

namespace softgpu {
namespace {

constexpr size_t most_groups = 4;

// Threads in one state at one place of the program.
struct Crowd {
  GroupState state;
  uint8_t barrier;
  const Instruction* where;  // the last that they executed, or the next
  uint32_t threads = 0, first = 0;
};

std::vector<Crowd> crowds_of(const Block& block) {
  std::map<std::tuple<GroupState, uint8_t, const Instruction*>, Crowd> found;
  for (uint32_t w = 0; w < block.warp_count; ++w) {
    const Warp& warp = block.warps[w];
    auto add = [&](GroupState state, uint8_t barrier, const Frame* frame, uint32_t pc, uint32_t mask) {
      if (mask == 0 || frame == nullptr) return;
      // A thread that waits at a barrier is behind that instruction; all others stand in front of theirs.
      const bool behind = state == GroupState::at_barrier || state == GroupState::at_grid_barrier;
      const uint32_t at = behind && pc != 0 ? pc - 1 : pc;
      const Instruction* const where =
          at < frame->function->code.size() ? &frame->function->code[at] : nullptr;
      const uint32_t first = w * warp_lanes + static_cast<uint32_t>(std::countr_zero(mask));
      auto [entry, added] =
          found.try_emplace({state, barrier, where}, Crowd{state, barrier, where, 0, first});
      entry->second.threads += static_cast<uint32_t>(std::popcount(mask));
      entry->second.first = std::min(entry->second.first, first);
    };
    for (const Group& group : warp.groups) add(group.state, group.barrier, group.frame, group.pc, group.mask);
    add(GroupState::runnable, 0, warp.frame, warp.pc, warp.group_mask);
  }
  std::vector<Crowd> crowds;
  for (const auto& [key, crowd] : found) crowds.push_back(crowd);
  std::stable_sort(crowds.begin(), crowds.end(),
                   [](const Crowd& a, const Crowd& b) { return a.threads > b.threads; });
  return crowds;
}

std::string threads_text(uint32_t count) {
  return count == 1 ? "1 thread" : std::to_string(count) + " threads";
}

std::string doing_text(const Crowd& crowd, const Block& block) {
  std::string text = threads_text(crowd.threads) + (crowd.threads == 1 ? ", " : " from ") +
                     thread_text(crowd.first, block.launch.request->block) +
                     (crowd.threads == 1 ? ", " : " on ");
  switch (crowd.state) {
    case GroupState::at_barrier:
      text += (crowd.threads == 1 ? "waits at barrier " : "wait at barrier ") + std::to_string(crowd.barrier);
      break;
    case GroupState::at_grid_barrier:
      text += crowd.threads == 1 ? "waits at the grid's barrier" : "wait at the grid's barrier";
      break;
    case GroupState::converging:
      text += crowd.threads == 1 ? "waits for lanes of its warp" : "wait for lanes of their warp";
      break;
    case GroupState::runnable:
      text += crowd.threads == 1 ? "runs" : "run";
      break;
  }
  const std::string line = line_text(*block.launch.program, crowd.where);
  return line.empty() ? text : text + " at " + line;
}

std::string seconds_text(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", static_cast<double>(time.count()) / 1000);
  return text;
}

}  // namespace

std::string waiting_text(const Block& block) {
  const std::vector<Crowd> crowds = crowds_of(block);
  std::string text;
  uint32_t others = 0;
  for (size_t i = 0; i < crowds.size(); ++i) {
    if (i >= most_groups) {
      others += crowds[i].threads;
      continue;
    }
    if (!text.empty()) text += "; ";
    text += doing_text(crowds[i], block);
  }
  if (others != 0) text += "; " + threads_text(others) + " are elsewhere";
  if (const uint32_t ended = block.threads - block.live_threads; ended != 0) {
    text += (text.empty() ? "" : "; ") + threads_text(ended) + (ended == 1 ? " has ended" : " have ended");
  }
  return text;
}

std::string stuck_text(const Block& block) {
  std::string text = "no thread can go on (kernel " + kernel_text(block.launch.info->name) + ", block " +
                     text_of(block.index) + "): " + waiting_text(block);
  for (uint32_t rest = block.barriers_in_use; rest != 0; rest &= rest - 1) {
    const auto id = static_cast<uint32_t>(std::countr_zero(rest));
    const Barrier& barrier = block.barriers[id];
    uint64_t come = barrier.extra;
    for (const uint32_t lanes : barrier.arrived) come += static_cast<uint64_t>(std::popcount(lanes));
    text += "; barrier " + std::to_string(id) + " opens when " +
            threads_text(barrier.expected != 0 ? barrier.expected : block.live_threads) +
            (barrier.expected != 0 ? " have come" : " (all that have not ended) have come") + ", and " +
            std::to_string(come) + (come == 1 ? " has" : " have");
  }
  return text;
}

std::string late_text(const Block& block) {
  return "kernel " + kernel_text(block.launch.info->name) + " has not ended after " +
         seconds_text(block.launch.request->time_limit) + "; block " + text_of(block.index) + ": " +
         waiting_text(block);
}

}  // namespace softgpu
