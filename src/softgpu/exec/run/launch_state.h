// What all blocks of one launch share.
#pragma once

#include <atomic>
#include <chrono>
#include <csetjmp>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "softgpu/exec/program/compiled_kernel.h"
#include "softgpu/exec/program/program.h"

namespace softgpu {

// cudaLaunchCooperativeKernel hands kernels this; grid.sync() of cooperative groups spins on the second word.
struct GridWorkspace {
  uint32_t size = 0;
  std::atomic<uint32_t> barrier{0};
  uint32_t reserved[14] = {};
};

// Of host memory, for the registers of a launch.
inline constexpr uint64_t most_register_bytes = uint64_t{4} << 30;

struct LaunchState {
  const Launch* request = nullptr;
  const MemoryMap* memory = nullptr;
  const DeviceServices* services = nullptr;
  const ProgramParts* program = nullptr;
  const ImageParts* image = nullptr;
  const Kernel* kernel = nullptr;
  const KernelInfo* info = nullptr;
  std::shared_ptr<const CompiledKernel> compiled;  // null: interpret

  uint64_t blocks = 0;
  uint32_t threads_per_block = 0;
  uint64_t shared_bytes = 0;  // static + dynamic
  uint64_t local_stride = 0;  // bytes of local memory per thread
  uint64_t grid_id = 0;
  uint32_t multiprocessors = 1;
  std::vector<std::byte> parameters;  // padded copy
  uint64_t parameter_address = 0;
  alignas(64) GridWorkspace workspace;

  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

  alignas(64) std::atomic<uint64_t> next_block{0};  // written all the time
  alignas(64) std::atomic<bool> stop{false}, late{false};
  // Blocks that a compiled kernel had taken together and gave back: they go first.
  std::vector<uint64_t> returned_blocks GUARDED_BY(mutex);
  std::atomic<uint64_t> returned_count{0};
  std::atomic<uint64_t> executed{0};

  // Host memory of the registers of all blocks, which keep it until the launch ends.
  std::atomic<uint64_t> register_bytes{0};
  // Counts more. Throws std::bad_alloc if that is more than a launch may take, which is the launch's fault
  // then.
  void take_registers(uint64_t bytes);

  // Grid barrier.
  gpupool::Mutex mutex;
  gpupool::CondVar changed;
  uint64_t grid_arrived GUARDED_BY(mutex) = 0;  // blocks, of this generation
  std::atomic<uint64_t> blocks_finished{0};
  std::atomic<uint64_t> grid_generation{0};

  // Textures and surfaces that the launch has used, so that a handle is asked for once.
  gpupool::Mutex textures_mutex;
  std::unordered_map<uint64_t, std::shared_ptr<const TextureView>> textures[2] GUARDED_BY(textures_mutex);

  // The first fault.
  Fault fault GUARDED_BY(mutex) = Fault::none;
  std::string detail GUARDED_BY(mutex);

  void set_fault(Fault kind, std::string text) {
    const gpupool::MutexLock lock(mutex);
    if (fault == Fault::none) {
      fault = kind;
      detail = std::move(text);
    }
    stop.store(true, std::memory_order_relaxed);
    changed.notify_all();
  }
  [[nodiscard]] bool cancelled() const {
    return stop.load(std::memory_order_relaxed) ||
           (request->cancel != nullptr && request->cancel->load(std::memory_order_relaxed));
  }
};

// Where a memory fault of the block that this thread runs goes.
struct FaultGuard {
  sigjmp_buf* escape = nullptr;
  Warp* warp = nullptr;  // running
  uint64_t address = 0;  // set by the signal handler
};
FaultGuard& fault_guard();
#ifdef __SANITIZE_THREAD__
inline constexpr int saves_signal_mask = 1;  // ThreadSanitizer calls handlers with all signals blocked
#else
inline constexpr int saves_signal_mask = 0;  // the handler of a fault blocks none (SA_NODEFER)
#endif
void install_signal_handlers();  // idempotent
// Makes this the launch's fault if it is the first. `in` may be null.
void record_fault(const Warp& warp, const Instruction* in, Fault fault, const std::string& what,
                  bool with_address, uint64_t address, uint32_t lane);
// The same for an access that the processor has refused, by what the signal handler saw.
void record_memory_signal(const Warp& warp, uint64_t address);

}  // namespace softgpu
