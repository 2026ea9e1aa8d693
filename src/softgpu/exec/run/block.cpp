#include "softgpu/exec/run/block.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "softgpu/exec/checks/waiting_threads.h"

namespace softgpu {
namespace {

void free_aligned(std::byte* memory) {
  ::operator delete[](memory, std::align_val_t{64});
}

}  // namespace

Block::Block(LaunchState& state) : launch(state) {
  threads = state.threads_per_block;
  warp_count = (threads + warp_lanes - 1) / warp_lanes;
  warps = std::make_unique<Warp[]>(warp_count);
  shared_pages = BlockPages(state.shared_bytes, state.kernel->shared_alignment);
  shared = shared_pages.data();
  local_pages = BlockPages(state.local_stride * warp_lanes * warp_count, state.kernel->local_alignment);
  local = local_pages.data();
  barriers.resize(block_barriers);
  for (Barrier& barrier : barriers) barrier.arrived.resize(warp_count, 0);
  for (uint32_t w = 0; w < warp_count; ++w) {
    Warp& warp = warps[w];
    warp.block = this;
    warp.index = w;
    warp.primary_begin = state.memory->primary_begin;
    warp.primary_end = state.memory->primary_end;
    warp.shared_base = reinterpret_cast<uint64_t>(shared);
    warp.shared_bytes = state.shared_bytes;
    warp.local_base = reinterpret_cast<uint64_t>(local) + w * warp_lanes * state.local_stride;
    warp.local_stride = state.local_stride;
    warp.parameters = state.parameter_address;
    warp.parameter_bytes = state.parameters.size();
  }
  if (state.program->checks.any()) {
    checks = std::make_unique<BlockChecks>(state.program->checks, static_cast<uint32_t>(state.shared_bytes),
                                           threads);
  }
}

Block::~Block() = default;

void Block::start(uint64_t linear_index) {
  const Dim3 grid = launch.request->grid;
  index.x = static_cast<uint32_t>(linear_index % grid.x);
  index.y = static_cast<uint32_t>(linear_index / grid.x % grid.y);
  index.z = static_cast<uint32_t>(linear_index / grid.x / grid.y);
  ++serial;
  live_threads = threads;
  at_grid_barrier = false;
  next_warp = 0;
  if (checks) checks->start();
  for (; barriers_in_use != 0; barriers_in_use &= barriers_in_use - 1) {  // arrivals that nobody waited for
    Barrier& barrier = barriers[static_cast<size_t>(std::countr_zero(barriers_in_use))];
    const size_t warps_of_block = barrier.arrived.size();
    barrier = Barrier{};
    barrier.arrived.resize(warps_of_block, 0);
  }
  if (launch.compiled != nullptr) return launch.compiled->start(*this);
  for (uint32_t w = 0; w < warp_count; ++w) {
    Warp& warp = warps[w];
    const uint32_t rest = threads - w * warp_lanes;
    const uint32_t mask = rest >= warp_lanes ? full_mask : (uint32_t{1} << rest) - 1;
    warp.groups.clear();
    warp.live = mask;
    warp.group_mask = 0;
    warp.rotated = warp.yield_requested = warp.must_converge_now = false;
    warp.branch_budget = 0;
    warp.budget_limit = full_branch_budget;
    if (warp.frame != nullptr) release_frame(warp, warp.frame);
    warp.frame = nullptr;
    Frame* const frame = new_frame(warp, launch.program->functions[launch.kernel->function]);
    frame->lanes = mask;
    Group group;
    group.mask = mask;
    group.frame = frame;
    warp.groups.push_back(group);
  }
}

Frame* Block::new_frame(Warp& warp, const Function& code) {
  Frame* frame = nullptr;
  for (size_t i = warp.free_frames.size(); i-- > 0;) {
    if (warp.free_frames[i]->function != &code) continue;
    frame = warp.free_frames[i];
    warp.free_frames.erase(warp.free_frames.begin() + static_cast<std::ptrdiff_t>(i));
    break;
  }
  if (frame == nullptr) {
    launch.take_registers(code.register_bytes);
    auto* const memory = static_cast<std::byte*>(::operator new[](code.register_bytes, std::align_val_t{64}));
    std::memset(memory, 0, code.register_bytes);
    register_files_.emplace_back(memory, free_aligned);
    frames_.push_back(std::make_unique<Frame>());
    frame = frames_.back().get();
    frame->function = &code;
    frame->registers = memory;
  }
  frame->parent = nullptr;
  frame->site = nullptr;
  frame->depth = 0;
  frame->local_offset = 0;
  if (frame->block_serial != serial) prepare_frame(warp, *frame);
  frame->block_serial = serial;
  return frame;
}

void LaunchState::take_registers(uint64_t bytes) {
  if (register_bytes.fetch_add(bytes) + bytes <= most_register_bytes) return;
  set_fault(Fault::launch_out_of_resources,
            "kernel " + info->name + ": the registers of its threads take more than 4 GiB of host memory");
  throw std::bad_alloc();
}

void Block::release_frame(Warp& warp, Frame* frame) {
  warp.free_frames.push_back(frame);
}

uint64_t Block::executed() const {
  uint64_t sum = 0;
  for (uint32_t w = 0; w < warp_count; ++w) sum += warps[w].clock;
  return sum;
}

namespace {

uint64_t special_value(const Block& block, const Warp& warp, SpecialRegister which, uint32_t lane) {
  using S = SpecialRegister;
  const Dim3 size = block.launch.request->block, grid = block.launch.request->grid;
  const uint32_t thread = warp.index * warp_lanes + lane;
  switch (which) {
    case S::tid_x:
      return thread % size.x;
    case S::tid_y:
      return thread / size.x % size.y;
    case S::tid_z:
      return thread / size.x / size.y;
    case S::ntid_x:
      return size.x;
    case S::ntid_y:
      return size.y;
    case S::ntid_z:
      return size.z;
    case S::ctaid_x:
      return block.index.x;
    case S::ctaid_y:
      return block.index.y;
    case S::ctaid_z:
      return block.index.z;
    case S::nctaid_x:
      return grid.x;
    case S::nctaid_y:
      return grid.y;
    case S::nctaid_z:
      return grid.z;
    case S::laneid:
      return lane;
    case S::warpid:
      return warp.index;
    case S::nwarpid:
      return block.warp_count;
    case S::lanemask_eq:
      return uint32_t{1} << lane;
    case S::lanemask_le:
      return full_mask >> (31 - lane);
    case S::lanemask_lt:
      return (uint32_t{1} << lane) - 1;
    case S::lanemask_ge:
      return full_mask << lane;
    case S::lanemask_gt:
      return full_mask << lane << 1;
    case S::smid:
      return block.smid;
    case S::nsmid:
      return block.launch.multiprocessors;
    case S::gridid:
      return block.launch.grid_id;
    case S::workspace_low:
      return reinterpret_cast<uint64_t>(&block.launch.workspace) & 0xffffffffu;
    case S::workspace_high:
      return reinterpret_cast<uint64_t>(&block.launch.workspace) >> 32;
    case S::dynamic_smem_size:
      return block.launch.request->dynamic_shared_bytes;
    case S::total_smem_size:
      return block.launch.shared_bytes;
    case S::one:
      return 1;
    default:
      return 0;
  }
}

bool differs_between_lanes(SpecialRegister which) {
  using S = SpecialRegister;
  return which == S::tid_x || which == S::tid_y || which == S::tid_z || which == S::laneid ||
         (which >= S::lanemask_eq && which <= S::lanemask_gt);
}

uint64_t parameter_value(const LaunchState& launch, const Constant& constant) {
  uint64_t value = 0;
  std::memcpy(&value, launch.parameters.data() + constant.value, constant.parameter_bytes);
  if (constant.sign_extends) {
    const uint32_t unused = 64 - 8u * constant.parameter_bytes;
    value = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
  }
  return value;
}

template <class T>
void fill(std::byte* slot, uint64_t value) {
  auto* const lanes = reinterpret_cast<T*>(slot);
  for (uint32_t i = 0; i < warp_lanes; ++i) lanes[i] = static_cast<T>(value);
}
void fill_lanes(std::byte* slot, uint32_t lane_bytes, uint64_t value) {
  if (lane_bytes == 2)
    fill<uint16_t>(slot, value);
  else if (lane_bytes == 4)
    fill<uint32_t>(slot, value);
  else if (lane_bytes == 8)
    fill<uint64_t>(slot, value);
  else
    fill<unsigned __int128>(slot, value);
}

}  // namespace

// Fills the constant slots. A frame that has run in another block only needs what changes with the block.
void Block::prepare_frame(Warp& warp, Frame& frame) {
  if (frame.block_serial != 0) {
    for (const Constant& constant : frame.function->block_constants) {
      fill_lanes(frame.registers + constant.offset, constant.lane_bytes,
                 special_value(*this, warp, constant.special, 0));
    }
    return;
  }
  for (const Constant& constant : frame.function->constants) fill_constant(warp, frame.registers, constant);
}

void Block::fill_constant(const Warp& warp, std::byte* registers, const Constant& constant) const {
  std::byte* const slot = registers + constant.offset;
  uint64_t value = constant.value;
  switch (constant.kind) {
    case Constant::Kind::immediate:
      break;
    case Constant::Kind::global:
      value += launch.image->addresses[constant.symbol];
      break;
    case Constant::Kind::shared:
      value += launch.kernel->shared_offsets.at(constant.symbol);
      break;
    case Constant::Kind::dynamic_shared:
      value += launch.kernel->dynamic_shared_offset;
      break;
    case Constant::Kind::parameter:
      value = parameter_value(launch, constant);
      break;
    case Constant::Kind::special:
      value = special_value(*this, warp, constant.special, 0);
      if (!differs_between_lanes(constant.special)) break;
      for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
        value = special_value(*this, warp, constant.special, lane);
        std::memcpy(slot + lane * constant.lane_bytes, &value, std::min<size_t>(constant.lane_bytes, 8));
      }
      return;
  }
  fill_lanes(slot, constant.lane_bytes, value);
}

BlockStatus Block::run(uint64_t slice_instructions) {
  rests_ns = 0;
  if (launch.compiled != nullptr) return launch.compiled->run(*this, slice_instructions);
  FaultGuard& guard = fault_guard();
  uint64_t done = 0;
  for (;;) {
    bool progress = false;
    uint32_t rests = no_index;
    for (uint32_t w = 0; w < warp_count; ++w) {
      Warp& warp = warps[w];
      if (warp.live == 0) continue;
      if (launch.cancelled()) return BlockStatus::running;
      guard.warp = &warp;
      const uint64_t before = warp.clock;
      if (run_warp(warp)) {
        progress = true;
        note_turn(warp, rests);
      }
      done += warp.clock - before;
    }
    const BlockStatus status = status_after_round(progress);
    if (status != BlockStatus::running || launch.cancelled()) return status;
    if (done >= slice_instructions || std::exchange(slice_over, false) || gives_way(rests))
      return BlockStatus::running;
  }
}

void Block::note_turn(const Warp& warp, uint32_t& rests) {
  if (rests == 0 || warp.live == 0) return;
  const auto runnable = std::count_if(warp.groups.begin(), warp.groups.end(),
                                      [](const Group& group) { return group.state == GroupState::runnable; });
  rests = runnable == 1 ? std::min(rests, warp.sleeps_ns) : 0;
}

bool Block::gives_way(uint32_t rests) {
  constexpr uint32_t least = 20'000, most = 1'000'000;  // the PTX ISA bounds nanosleep by a millisecond
  if (rests == no_index || rests < least) return false;
  rests_ns = std::min(rests, most);
  return true;
}

BlockStatus Block::status_after_round(bool progress) {
  if (live_threads == 0) return BlockStatus::finished;
  uint32_t waiting_for_grid = 0;
  if (launch.request->cooperative || !progress) {  // only then may it matter
    for (uint32_t w = 0; w < warp_count; ++w) {
      for (const Group& group : warps[w].groups) {
        if (group.state == GroupState::at_grid_barrier) waiting_for_grid += count_lanes(group.mask);
      }
    }
  }
  if (waiting_for_grid == live_threads) {
    at_grid_barrier = true;
    return BlockStatus::at_grid_barrier;
  }
  if (progress || launch.cancelled()) return BlockStatus::running;
  open_barriers();
  for (uint32_t w = 0; w < warp_count && !progress; ++w) {
    for (const Group& group : warps[w].groups) progress |= group.state == GroupState::runnable;
  }
  if (!progress) {
    launch.set_fault(Fault::timeout, stuck_text(*this));
    siglongjmp(*fault_guard().escape, 1);
  }
  return BlockStatus::running;
}

static uint32_t living_arrivals(const Block& block, const Barrier& barrier) {
  uint32_t lanes = 0;
  for (uint32_t w = 0; w < block.warp_count; ++w)
    lanes += count_lanes(barrier.arrived[w] & block.warps[w].live);
  return lanes;
}

void Block::open_barriers() {
  for (uint32_t rest = barriers_in_use; rest != 0; rest &= rest - 1) {
    const auto id = static_cast<uint32_t>(std::countr_zero(rest));
    Barrier& barrier = barriers[id];
    if (barrier.expected == 0) {
      if (barrier.count < live_threads) continue;
      // Whoever arrives there may end without waiting, and counts no more.
      if (id == cluster_barrier && living_arrivals(*this, barrier) < live_threads) continue;
    } else {
      uint64_t arrived = barrier.extra;
      for (uint32_t w = 0; w < warp_count; ++w) {
        const uint32_t lanes = barrier.arrived[w];
        if (lanes == 0) continue;
        // Thread counts are multiples of the warp size: a short or partly exited warp counts as a whole one.
        arrived += (lanes & warps[w].live) == warps[w].live ? warp_lanes : count_lanes(lanes);
      }
      if (arrived < barrier.expected) continue;
    }
    const bool all_wait_here = barrier.expected == 0 && id != cluster_barrier;
    if (checks && !checks->open(*this, id, !all_wait_here)) siglongjmp(*fault_guard().escape, 1);
    for (uint32_t w = 0; w < warp_count; ++w) {
      for (Group& group : warps[w].groups) {
        if (group.state != GroupState::at_barrier || group.barrier != id) continue;
        group.state = GroupState::runnable;
        if (group.result_register == no_index) continue;
        std::byte* const slot = group.frame->registers + group.result_register;
        if (group.reduction == 1) {
          for (uint32_t i = 0; i < warp_lanes; ++i) {
            if (group.mask >> i & 1) std::memcpy(slot + 4 * i, &barrier.population, 4);
          }
        } else {
          const bool truth = group.reduction == 2 ? barrier.all : barrier.any;
          uint32_t lanes;
          std::memcpy(&lanes, slot, 4);
          lanes = truth ? lanes | group.mask : lanes & ~group.mask;
          std::memcpy(slot, &lanes, 4);
        }
        group.result_register = no_index;
      }
    }
    std::fill(barrier.arrived.begin(), barrier.arrived.end(), 0);
    barrier.count = barrier.extra = barrier.population = barrier.expected = 0;
    barrier.all = true;
    barrier.any = false;
    barriers_in_use &= ~(uint32_t{1} << id);
  }
}

}  // namespace softgpu
