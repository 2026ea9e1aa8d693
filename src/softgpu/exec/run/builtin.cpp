#include "softgpu/exec/program/builtin.h"

#include <bit>
#include <cstring>

#include "softgpu/exec/run/block.h"
#include "softgpu/exec/run/device_printf.h"

namespace softgpu {
namespace {

// Reads and writes the caller's .param variables of one lane.
class Arguments {
 public:
  Arguments(const Warp& warp, const CallSite& site, uint32_t lane)
      : site_(site),
        memory_(reinterpret_cast<std::byte*>(warp.local_base + lane * warp.local_stride) +
                warp.frame->local_offset) {}

  [[nodiscard]] uint64_t get(size_t i) const {
    uint64_t value = 0;
    std::memcpy(&value, memory_ + site_.arguments[i].caller_offset,
                std::min<uint32_t>(site_.arguments[i].bytes, 8));
    return value;
  }
  void set_result(uint64_t value) const {
    if (site_.results.empty()) return;
    std::memcpy(memory_ + site_.results[0].caller_offset, &value,
                std::min<uint32_t>(site_.results[0].bytes, 8));
  }

 private:
  const CallSite& site_;
  std::byte* memory_;
};

template <class F>
void each_lane(const Warp& warp, const CallSite& site, F f) {
  for (uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    f(lane, Arguments(warp, site, lane));
  }
}

// A NUL-terminated text in device memory; faults if it runs out of valid memory. Not longer than limit.
std::string read_text(Warp& warp, const Instruction& in, uint64_t address, uint32_t lane,
                      uint32_t char_bytes = 1) {
  constexpr size_t most_characters = 65536;
  size_t length = 0;
  for (; length < most_characters; ++length) {  // first check, then build: a fault must not skip a destructor
    const uint64_t at = address + length * char_bytes;
    if (!address_is_valid(warp, at, char_bytes)) {
      raise_fault(warp, in, Fault::illegal_address, "illegal address of a text", at, lane);
    }
    if (*reinterpret_cast<const char*>(at) == '\0') break;
  }
  std::string text(length, '\0');
  for (size_t i = 0; i < length; ++i) text[i] = *reinterpret_cast<const char*>(address + i * char_bytes);
  return text;
}

void run_printf(Warp& warp, const Instruction& in, const CallSite& site) {
  const DeviceServices& services = *warp.block->launch.services;
  each_lane(warp, site, [&](uint32_t lane, Arguments arguments) {
    const uint64_t format_address = arguments.get(0), values = arguments.get(1);
    // Checks everything that it will read before any text is built.
    struct Reader : PrintfReader {
      Reader(Warp& w, const Instruction& i, uint32_t l) : warp(w), in(i), lane(l) {}
      bool readable(uint64_t address, uint64_t size) const override {
        return address_is_valid(warp, address, size);
      }
      Warp& warp;
      const Instruction& in;
      uint32_t lane;
    } reader(warp, in, lane);
    uint64_t bad = 0;
    bool ok;
    {
      std::string text;
      ok = device_printf(reader, format_address, values, text, bad);
      if (ok && services.print) services.print(text);
    }
    if (!ok) raise_fault(warp, in, Fault::illegal_address, "printf reads an illegal address", bad, lane);
    arguments.set_result(1);
  });
}

void run_assert(Warp& warp, const Instruction& in, const CallSite& site) {
  const auto lane = static_cast<uint32_t>(std::countr_zero(warp.mask));
  const Arguments arguments(warp, site, lane);
  {
    const std::string message = read_text(warp, in, arguments.get(0), lane);
    const std::string file = read_text(warp, in, arguments.get(1), lane);
    const std::string function = read_text(warp, in, arguments.get(3), lane);
    record_fault(warp, &in, Fault::assert_failed,
                 file + ":" + std::to_string(arguments.get(2)) + ": " + function + ": assertion `" + message +
                     "` failed",
                 false, 0, lane);
  }
  siglongjmp(*fault_guard().escape, 1);
}

void run_malloc(Warp& warp, const Instruction&, const CallSite& site) {
  const DeviceServices& services = *warp.block->launch.services;
  each_lane(warp, site, [&](uint32_t, Arguments arguments) {
    const uint64_t size = arguments.get(0);
    arguments.set_result(services.heap_allocate && size != 0 ? services.heap_allocate(size) : 0);
  });
}
void run_free(Warp& warp, const Instruction& in, const CallSite& site) {
  const DeviceServices& services = *warp.block->launch.services;
  each_lane(warp, site, [&](uint32_t lane, Arguments arguments) {
    const uint64_t address = arguments.get(0);
    if (address == 0) return;
    if (!services.heap_free || !services.heap_free(address)) {
      raise_fault(warp, in, Fault::illegal_address, "free of what malloc did not return:", address, lane);
    }
  });
}

// gpupool_operation(round): the kernel is an operation of a math library; native code does its next part, and
// says whether the block has more. One thread of a block calls it. Between two parts everything may stand
// still or end.
void run_operation(Warp& warp, const Instruction& in, const CallSite& site) {
  Block& block = *warp.block;
  const LaunchState& launch = block.launch;
  const Dim3 grid = launch.request->grid;
  const auto lane = static_cast<uint32_t>(std::countr_zero(warp.mask));
  const Arguments arguments(warp, site, lane);
  bool failed;
  {
    OperationEnd end{Fault::illegal_instruction, "this driver has no operations"};
    if (launch.services->operation) {
      const uint64_t linear =
          block.index.x + uint64_t{grid.x} * (block.index.y + uint64_t{grid.y} * block.index.z);
      end = launch.services->operation({launch.info->name,
                                        launch.request->parameters.first(launch.info->parameter_bytes),
                                        linear, launch.blocks, arguments.get(0)});
    }
    failed = end.fault != Fault::none;
    if (failed) record_fault(warp, &in, end.fault, end.detail, false, 0, lane);
    arguments.set_result(end.more ? 1 : 0);
  }
  if (failed) siglongjmp(*fault_guard().escape, 1);
  block.slice_over = true;
  warp.yield_requested = true;
  warp.meet_pc = 0;
}

// cudaGraphSetConditional(handle, value)
void run_set_conditional(Warp& warp, const Instruction& in, const CallSite& site) {
  const DeviceServices& services = *warp.block->launch.services;
  each_lane(warp, site, [&](uint32_t lane, Arguments arguments) {
    const uint64_t handle = arguments.get(0);
    if (!services.set_conditional ||
        !services.set_conditional(handle, static_cast<uint32_t>(arguments.get(1)))) {
      raise_fault(warp, in, Fault::illegal_instruction, "no such conditional handle:", handle, lane);
    }
  });
}

constexpr uint64_t grid_handle = 1;

// cudaCGGetIntrinsicHandle(scope): the grid's handle, 0 where grid synchronisation is not possible.
void run_grid_handle(Warp& warp, const Instruction&, const CallSite& site) {
  const bool cooperative = warp.block->launch.request->cooperative;
  each_lane(warp, site,
            [&](uint32_t, Arguments arguments) { arguments.set_result(cooperative ? grid_handle : 0); });
}
// cudaCGSynchronize(handle, flags)
void run_grid_synchronize(Warp& warp, const Instruction& in, const CallSite& site) {
  LaunchState& launch = warp.block->launch;
  if (!launch.request->cooperative) {
    raise_fault(warp, in, Fault::illegal_instruction, "grid synchronisation without a cooperative launch");
  }
  each_lane(warp, site, [&](uint32_t, Arguments arguments) { arguments.set_result(0); });
  Group group;
  group.mask = warp.mask;
  group.pc = warp.pc;
  group.frame = warp.frame;
  group.state = GroupState::at_grid_barrier;
  group.last_run = warp.clock;
  push_group(warp, group);
  warp.group_mask &= ~warp.mask;
  if (warp.group_mask != 0) set_mask(warp, warp.group_mask);
  warp.meet_pc = 0;
}
// cudaCGGetSize(numThreads*, numGrids*, handle), cudaCGGetRank(threadRank*, gridRank*, handle)
void write_word(Warp& warp, const Instruction& in, uint64_t address, uint32_t value, uint32_t lane) {
  if (address == 0) return;
  if (!address_is_valid(warp, address, 4))
    raise_fault(warp, in, Fault::illegal_address, "illegal address", address, lane);
  std::memcpy(reinterpret_cast<void*>(address), &value, 4);
}
void run_grid_size(Warp& warp, const Instruction& in, const CallSite& site) {
  const LaunchState& launch = warp.block->launch;
  each_lane(warp, site, [&](uint32_t lane, Arguments arguments) {
    write_word(warp, in, arguments.get(0), static_cast<uint32_t>(launch.blocks * launch.threads_per_block),
               lane);
    write_word(warp, in, arguments.get(1), 1, lane);
    arguments.set_result(0);
  });
}
void run_grid_rank(Warp& warp, const Instruction& in, const CallSite& site) {
  const Block& block = *warp.block;
  const Dim3 grid = block.launch.request->grid;
  const uint64_t linear =
      block.index.x + uint64_t{grid.x} * (block.index.y + uint64_t{grid.y} * block.index.z);
  each_lane(warp, site, [&](uint32_t lane, Arguments arguments) {
    const uint64_t rank = linear * block.threads + warp.index * warp_lanes + lane;
    write_word(warp, in, arguments.get(0), static_cast<uint32_t>(rank), lane);
    write_word(warp, in, arguments.get(1), 0, lane);
    arguments.set_result(0);
  });
}

}  // namespace

std::span<const Builtin> builtins() {
  static constexpr Builtin known_builtins[] = {
      {"vprintf", 2, false, run_printf},
      {"__assertfail", 5, false, run_assert},
      {"malloc", 1, false, run_malloc},
      {"free", 1, false, run_free},
      {operation_function, 1, false, run_operation},
      {"cudaGraphSetConditional", 2, false, run_set_conditional},
      {"cudaCGGetIntrinsicHandle", 1, true, run_grid_handle},
      {"cudaCGSynchronize", 2, true, run_grid_synchronize},
      {"cudaCGGetSize", 3, false, run_grid_size},
      {"cudaCGGetRank", 3, false, run_grid_rank},
  };
  return known_builtins;
}

}  // namespace softgpu
