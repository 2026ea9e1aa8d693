// Faults: from checks in handlers, and from the processor for addresses inside the arena that are not mapped.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <mutex>

#include "softgpu/exec/block.h"

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

std::string dim_text(const Dim3& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

}  // namespace

FaultGuard& fault_guard() {
  static thread_local FaultGuard guard;
  return guard;
}

void install_signal_handlers() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
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
  std::string text = what;
  if (with_address) {
    char number[32];
    std::snprintf(number, sizeof(number), " 0x%llx", static_cast<unsigned long long>(address));
    text += number;
  }
  const Dim3 size = block.launch.request->block;
  const uint32_t thread = warp.index * kLanes + lane;
  text += " (kernel " + block.launch.info->name + ", block " + dim_text(block.index) + ", thread " +
          dim_text(Dim3{thread % size.x, thread / size.x % size.y, thread / size.x / size.y});
  if (in != nullptr && in->line != 0) {
    text += ", PTX line " + std::to_string(in->line);
    if (in->source != 0) text += " of source " + std::to_string(in->source + 1);
  }
  block.launch.set_fault(fault, text + ")");
}

void raise_fault(Warp& warp, const Instruction& in, Fault fault, const char* what, uint64_t address,
                 uint32_t lane) {
  record_fault(warp, &in, fault, what, fault == Fault::illegal_address || fault == Fault::misaligned_address,
               address, lane);
  siglongjmp(*fault_guard().escape, 1);
}

bool address_is_valid(const Warp& warp, uint64_t address, uint64_t size) {
  auto inside = [&](uint64_t begin, uint64_t bytes) {
    return address >= begin && address - begin < bytes && bytes - (address - begin) >= size;
  };
  const LaunchState& launch = warp.block->launch;
  if (inside(warp.primary_begin, warp.primary_end - warp.primary_begin)) return true;
  if (inside(warp.shared_base, warp.shared_bytes)) return true;
  if (inside(warp.local_base, warp.local_stride * kLanes)) return true;
  if (inside(warp.parameters, warp.parameter_bytes)) return true;
  if (inside(reinterpret_cast<uint64_t>(&launch.workspace), sizeof(launch.workspace))) return true;
  const auto& globals = launch.program->globals;
  for (size_t i = 0; i < globals.size(); ++i) {
    if (inside(launch.image->addresses[i], globals[i].info.size)) return true;
  }
  return launch.memory->contains && launch.memory->contains(address, size);
}

}  // namespace softgpu
