// Faults: from checks in handlers, and from the processor for addresses inside the arena that are not mapped.
#include <bit>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/mutex.h"
#include "softgpu/exec/checks/fault_text.h"
#include "softgpu/exec/program/access_kind.h"
#include "softgpu/exec/program/memory_operand.h"
#include "softgpu/exec/run/block.h"

namespace softgpu {
namespace {

struct OldActions {
  struct sigaction segv, bus;
};
OldActions& old_actions() {
  static OldActions actions;
  return actions;
}

void on_memory_signal(int signal, siginfo_t* info, void* context) {
  FaultGuard& guard = fault_guard();
  if (guard.escape != nullptr) {
    guard.address = reinterpret_cast<uint64_t>(info->si_addr);
    siglongjmp(*guard.escape, 2);
  }
  // Not ours: as if we were not here.
  const struct sigaction& old = signal == SIGSEGV ? old_actions().segv : old_actions().bus;
  if (old.sa_flags & SA_SIGINFO) {
    old.sa_sigaction(signal, info, context);
  } else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) {
    old.sa_handler(signal);
  } else {
    ::signal(signal, SIG_DFL);  // returning repeats the access, which now ends the process
  }
}

// Of the access itself where a check stands in its place.
AccessKind kind_of(const Warp& warp, const Instruction& in) {
  return in.handler == run_checked ? warp.frame->function->checked[in.op[checked_operand]].kind
                                   : access_kind(in);
}

// The lane whose access the processor refused at this address, of those that execute the instruction.
uint32_t lane_at(const Warp& warp, const Instruction* in, uint64_t address) {
  const auto first = warp.mask != 0 ? static_cast<uint32_t>(std::countr_zero(warp.mask)) : 0;
  const AccessKind kind = in != nullptr ? kind_of(warp, *in) : AccessKind{};
  if (!kind.known()) return first;
  const uint32_t operand = kind.step == AccessKind::Step::copy ? 1 : kind.address_operand;
  const uint32_t how = kind.step == AccessKind::Step::copy ? in->aux >> 4 : in->aux;
  if (how & (memory_operand::no_base | memory_operand::address32 | memory_operand::space_mask)) return first;
  for (uint32_t rest = warp.mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t base;
    std::memcpy(&base, warp.registers + in->op[operand] + 8 * lane, 8);
    if (kind.step == AccessKind::Step::load || kind.step == AccessKind::Step::store ||
        kind.step == AccessKind::Step::atomic) {
      base += static_cast<uint64_t>(in->immediate);
    }
    if (address - base < access_bytes(kind, *in)) return lane;
  }
  return first;
}

std::string access_text(const AccessKind& kind, uint32_t bytes) {
  const std::string size = std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  switch (kind.step) {
    case AccessKind::Step::load:
    case AccessKind::Step::matrix_load:
      return "read of " + size + " at ";
    case AccessKind::Step::store:
      return "write of " + size + " at ";
    case AccessKind::Step::atomic:
      return "atomic operation on " + size + " at ";
    case AccessKind::Step::copy:
      return "copy of " + size + " at ";
    default:
      return {};
  }
}

}  // namespace

FaultGuard& fault_guard() {
  static thread_local FaultGuard guard;
  return guard;
}

void install_signal_handlers() {
  static gpupool::Mutex mutex;
  const gpupool::MutexLock lock(mutex);
  auto install = [](int signal, struct sigaction& old) {
    struct sigaction current{};
    sigaction(signal, nullptr, &current);
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == on_memory_signal) return;
    old = current;
    struct sigaction action{};
    action.sa_sigaction = on_memory_signal;
    // Not deferred: the handler leaves by a jump that does not restore the signal mask.
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
  };
  install(SIGSEGV, old_actions().segv);
  install(SIGBUS, old_actions().bus);
}

void record_fault(const Warp& warp, const Instruction* in, Fault fault, const std::string& what,
                  bool with_address, uint64_t address, uint32_t lane) {
  const Block& block = *warp.block;
  std::string text = what, nearby;
  if (with_address) {
    const AccessKind kind = in != nullptr ? kind_of(warp, *in) : AccessKind{};
    const uint32_t bytes = kind.known() ? access_bytes(kind, *in) : 1;
    char number[32];
    std::snprintf(number, sizeof(number), "0x%llx", static_cast<unsigned long long>(address));
    if (kind.known())
      text += ", " + access_text(kind, bytes) + number;
    else
      text += std::string(" ") + number;
    const MemoryMap& memory = *block.launch.memory;
    if (fault == Fault::illegal_address && memory.describe) nearby = memory.describe(address, bytes);
  }
  text += " (" + where_text(block, warp.index * warp_lanes + lane, in) + ")";
  block.launch.set_fault(fault, nearby.empty() ? text : text + ": " + nearby);
}

void record_memory_signal(const Warp& warp, uint64_t address) {
  const Instruction* const in = warp.code != nullptr && warp.pc > 0 ? &warp.code[warp.pc - 1] : nullptr;
  record_fault(warp, in, Fault::illegal_address, "illegal address", true, address,
               lane_at(warp, in, address));
}

void raise_fault(Warp& warp, const Instruction& in, Fault fault, const char* what, uint64_t address,
                 uint32_t lane) {
  record_fault(warp, &in, fault, what, fault == Fault::illegal_address || fault == Fault::misaligned_address,
               address, lane);
  siglongjmp(*fault_guard().escape, 1);
}

bool address_is_valid(const Warp& warp, uint64_t address, uint64_t size) {
  return (address >= warp.primary_begin && address < warp.primary_end &&
          warp.primary_end - address >= size) ||
         address_is_in_known_memory(warp, address, size);
}

bool address_is_constant(const Warp& warp, uint64_t address) {
  const LaunchState& launch = warp.block->launch;
  const auto& globals = launch.program->globals;
  for (size_t i = 0; i < globals.size(); ++i) {
    if (globals[i].info.is_constant && address - launch.image->addresses[i] < globals[i].info.size)
      return true;
  }
  return false;
}

bool address_is_in_known_memory(const Warp& warp, uint64_t address, uint64_t size) {
  auto inside = [&](uint64_t begin, uint64_t bytes) {
    return address >= begin && address - begin < bytes && bytes - (address - begin) >= size;
  };
  const LaunchState& launch = warp.block->launch;
  if (inside(warp.shared_base, warp.shared_bytes)) return true;
  if (inside(warp.local_base, warp.local_stride * warp_lanes)) return true;
  if (inside(warp.parameters, warp.parameter_bytes)) return true;
  if (inside(reinterpret_cast<uint64_t>(&launch.workspace), sizeof(launch.workspace))) return true;
  const auto& globals = launch.program->globals;
  for (size_t i = 0; i < globals.size(); ++i) {
    if (inside(launch.image->addresses[i], globals[i].info.size)) return true;
  }
  return launch.memory->contains && launch.memory->contains(address, size);
}

}  // namespace softgpu
