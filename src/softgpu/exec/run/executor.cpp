// Launches over a pool of threads.
#include <time.h>

#include <algorithm>
#include <cfenv>
#include <csetjmp>
#include <list>
#include <thread>

#include "base/mutex.h"
#include "softgpu/exec/checks/waiting_threads.h"
#include "softgpu/exec/run/block.h"
#include "softgpu/exec/run/helper_threads.h"
#include "softgpu/exec/run/standstill.h"

namespace softgpu {
namespace {

constexpr uint64_t instructions_per_slice =
    1'000'000;  // warp instructions before another resident block has its turn
constexpr uint64_t patience_instructions =
    20'000'000;  // before a further block is begun although this one has not finished
constexpr size_t max_resident_blocks = 64;  // blocks per thread of a launch that is not cooperative
constexpr uint32_t least_chunks = 32;       // of a grid, at least, for each thread to take
constexpr uint64_t max_shared_bytes = 16 << 20;

enum class SliceResult : uint8_t { finished, running, at_grid_barrier, faulted };

class BlockRunner {
 public:
  BlockRunner(LaunchState& launch, uint32_t worker)
      : launch_(launch),
        worker_(worker),
        chunk_(launch.compiled != nullptr  // which takes neighbours itself
                   ? 1
                   : std::clamp<uint64_t>(launch.blocks / (uint64_t{least_chunks} * launch.multiprocessors),
                                          1, 16)) {}

  void run() {
    uint64_t patience_used = 0;
    for (;;) {
      if (launch_.cancelled()) break;
      const bool may_start = resident_.empty() || launch_.request->cooperative ||
                             (patience_used >= patience_instructions && has_room());
      if (may_start && start_block()) patience_used = 0;
      if (resident_.empty()) break;
      bool all_wait = true;
      uint32_t rests = no_index;  // the shortest sleep, if the blocks of this round do nothing else
      for (auto it = resident_.begin(); it != resident_.end();) {
        Block& block = **it;
        if (block.at_grid_barrier && !pass_grid_barrier(block)) {
          ++it;
          continue;
        }
        all_wait = false;
        if (!standstill_.enter([this] { return launch_.cancelled(); })) return account();
        const uint32_t before = block.index.x;
        const SliceResult result = run_slice(block);
        standstill_.leave();
        if (result == SliceResult::faulted) return account();
        end_if_late(block);
        rests = result == SliceResult::running ? std::min(rests, block.rests_ns) : 0;
        if (result == SliceResult::running) {
          // Compiled code goes on to the next blocks by itself: then nothing has been in vain.
          patience_used = block.index.x == before ? patience_used + instructions_per_slice : 0;
        }
        if (result == SliceResult::at_grid_barrier) arrive_at_grid_barrier(block);
        if (result == SliceResult::finished) {
          finish_block();
          idle_.splice(idle_.end(), resident_, it++);
        } else {
          ++it;
        }
        if (launch_.cancelled()) return account();
      }
      if (all_wait && !more_blocks()) wait_for_grid();
      if (all_wait || rests == 0) continue;
      if (more_blocks() && has_room()) {
        patience_used = patience_instructions;  // the thread has time for one that may be waited for
      } else {
        std::this_thread::sleep_for(std::chrono::nanoseconds(rests));
      }
    }
    account();
  }

 private:
  // For a block beside those that have not finished. The other half of the registers is for functions that
  // they call.
  [[nodiscard]] bool has_room() const {
    return resident_.size() < max_resident_blocks &&
           (!idle_.empty() || launch_.register_bytes < most_register_bytes / 2);
  }

  // A slice of one block; if the block ends in it, whole blocks after it for as long as they end. Separate
  // from its caller so that the jump out of a fault passes no destructor.
  [[gnu::noinline]] SliceResult run_slice(Block& block) {
    sigjmp_buf escape;
    FaultGuard& guard = fault_guard();
    guard.escape = &escape;
    guard.warp = nullptr;
    SliceResult result = SliceResult::faulted;
    const int jumped = sigsetjmp(escape, saves_signal_mask);
    if (jumped == 0) {
      try {
        BlockStatus status = block.run(instructions_per_slice);
        while (status == BlockStatus::finished && next_in_place(block))
          status = block.run(instructions_per_slice);
        result = status == BlockStatus::finished          ? SliceResult::finished
                 : status == BlockStatus::at_grid_barrier ? SliceResult::at_grid_barrier
                                                          : SliceResult::running;
      } catch (const std::bad_alloc&) {  // the caller has to leave the standstill all the same
        launch_.set_fault(Fault::launch_out_of_resources, "out of host memory for block state");
      } catch (const std::exception& error) {
        launch_.set_fault(Fault::launch_out_of_resources, std::string("the engine failed: ") + error.what());
      }
    }
    guard.escape = nullptr;
    if (jumped == 2) record_memory_signal(*guard.warp, guard.address);
    return result;
  }

  // Blocks are taken by the handful: the counter is everybody's.
  bool take_block(uint64_t& index) {
    if (launch_.returned_count.load(std::memory_order_relaxed) != 0) {
      const gpupool::MutexLock lock(launch_.mutex);
      if (!launch_.returned_blocks.empty()) {
        index = launch_.returned_blocks.back();
        launch_.returned_blocks.pop_back();
        --launch_.returned_count;
        return true;
      }
    }
    if (taken_ == taken_end_) {
      if (launch_.next_block.load(std::memory_order_relaxed) >= launch_.blocks) return false;
      taken_ = std::min(launch_.next_block.fetch_add(chunk_, std::memory_order_relaxed), launch_.blocks);
      taken_end_ = std::min(taken_ + chunk_, launch_.blocks);
      if (taken_ == taken_end_) return false;
    }
    index = taken_++;
    return true;
  }
  [[nodiscard]] bool more_blocks() const {
    return taken_ != taken_end_ || launch_.next_block.load(std::memory_order_relaxed) < launch_.blocks ||
           launch_.returned_count.load(std::memory_order_relaxed) != 0;
  }
  bool start_block() {
    uint64_t index = 0;
    if (!take_block(index)) return false;
    if (idle_.empty()) idle_.push_back(std::make_unique<Block>(launch_));
    idle_.front()->smid = worker_;
    idle_.front()->start(index);
    resident_.splice(resident_.end(), idle_, idle_.begin());
    return true;
  }
  // The block has finished; makes it the next one, if nobody else waits for a turn.
  bool next_in_place(Block& block) {
    uint64_t index = 0;
    if (launch_.request->cooperative || resident_.size() > 1 || launch_.cancelled()) return false;
    if (standstill_.on()) return false;
    if (taken_ == taken_end_ && is_late()) return false;  // once for each handful
    if (!take_block(index)) return false;
    finish_block();
    block.start(index);
    return true;
  }
  void finish_block() {
    ++finished_;
    if (!launch_.request->cooperative) return;
    count_finished();
    const gpupool::MutexLock lock(launch_.mutex);
    open_grid_barrier_if_complete();
  }
  void count_finished() {
    launch_.blocks_finished += finished_;
    finished_ = 0;
  }
  void open_grid_barrier_if_complete() REQUIRES(launch_.mutex) {
    if (launch_.grid_arrived == 0 || launch_.grid_arrived + launch_.blocks_finished < launch_.blocks) return;
    launch_.grid_arrived = 0;
    ++launch_.grid_generation;
    launch_.changed.notify_all();
  }
  void arrive_at_grid_barrier(Block& block) {
    const gpupool::MutexLock lock(launch_.mutex);
    block.grid_generation = launch_.grid_generation;
    ++launch_.grid_arrived;
    open_grid_barrier_if_complete();
  }
  bool pass_grid_barrier(Block& block) {
    if (launch_.grid_generation.load() == block.grid_generation) return false;
    block.at_grid_barrier = false;
    for (uint32_t w = 0; w < block.warp_count; ++w) {
      for (Group& group : block.warps[w].groups) {
        if (group.state == GroupState::at_grid_barrier) group.state = GroupState::runnable;
      }
    }
    return true;
  }
  [[nodiscard]] bool is_late() const {
    return launch_.request->time_limit.count() > 0 && device_now() >= launch_.deadline;
  }
  void end_if_late(const Block& block) {
    if (!is_late()) return;
    launch_.late = true;
    launch_.set_fault(Fault::timeout, late_text(block));
  }
  void wait_for_grid() {
    gpupool::MutexLock lock(launch_.mutex);
    const bool mine_can_go = std::any_of(resident_.begin(), resident_.end(), [&](const auto& block) {
      return block->grid_generation != launch_.grid_generation;
    });
    if (mine_can_go || launch_.stop) return;
    // Bounded, so that a cancellation from outside is seen.
    launch_.changed.wait_for(launch_.mutex, std::chrono::milliseconds(20));
    lock.unlock();
    end_if_late(*resident_.front());
  }
  void account() {
    count_finished();
    uint64_t executed = 0;
    for (const auto& list : {std::ref(resident_), std::ref(idle_)}) {
      for (const auto& block : list.get()) executed += block->executed();
    }
    launch_.executed += executed;
  }

  LaunchState& launch_;
  Standstill& standstill_ = Standstill::of_process();
  uint32_t worker_;
  const uint64_t chunk_;
  uint64_t taken_ = 0, taken_end_ = 0;  // blocks that are this worker's to start
  uint64_t finished_ = 0;               // and are not counted in the launch yet
  std::list<std::unique_ptr<Block>> resident_, idle_;
};

// Checks stand in the interpreter's instructions: such programs are not compiled.
KernelCompiler* compiler_of(const ProgramParts& program) {
  return program.checks.any() ? nullptr : kernel_compiler();
}

// Kernels compute with subnormal numbers and round to nearest, whatever the thread's program has chosen: that
// is the program's again afterwards.
class DeviceArithmetic {
 public:
  DeviceArithmetic() {
    std::fegetenv(&program_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DeviceArithmetic() { std::fesetenv(&program_); }
  DeviceArithmetic(const DeviceArithmetic&) = delete;
  DeviceArithmetic& operator=(const DeviceArithmetic&) = delete;

 private:
  std::fenv_t program_{};
};

void take_part(LaunchState& launch, uint32_t worker) {
  const DeviceArithmetic arithmetic;
  try {
    BlockRunner(launch, worker).run();
  } catch (const std::bad_alloc&) {
    launch.set_fault(Fault::launch_out_of_resources, "out of host memory for block state");
  } catch (const std::exception& error) {  // whatever a kernel does, the process lives on
    launch.set_fault(Fault::launch_out_of_resources, std::string("the engine failed: ") + error.what());
  }
}

LaunchResult refuse(std::string why) {
  return LaunchResult{Fault::launch_out_of_resources, std::move(why), false, 0};
}

}  // namespace

struct Executor::State {
  // The thread that calls run() is one of them.
  explicit State(unsigned threads) : helpers(std::max(threads, 1U) - 1) {}

  HelperThreads helpers;
  std::atomic<uint64_t> grids{0};
};

Executor::Executor(unsigned threads) : state_(std::make_unique<State>(threads)) {}

Executor::~Executor() = default;

HelperThreads& Executor::helpers() {
  return state_->helpers;
}

unsigned Executor::threads() const {
  return state_->helpers.count() + 1;
}

LaunchResult Executor::run(const Launch& launch, const MemoryMap& memory, const DeviceServices& services) {
  if (launch.image == nullptr) return refuse("no image");
  const ProgramParts& program = launch.image->program().parts();
  if (launch.kernel >= program.kernels.size()) return refuse("no such kernel");
  const Kernel& kernel = program.kernels[launch.kernel];
  const KernelInfo& info = program.kernel_infos[launch.kernel];
  const uint64_t threads = uint64_t{launch.block.x} * launch.block.y * launch.block.z;
  const uint64_t blocks_xy = uint64_t{launch.grid.x} * launch.grid.y;
  if (threads == 0 || blocks_xy == 0 || launch.grid.z == 0) return refuse("empty grid or block");
  if (launch.block.x > 1024 || launch.block.y > 1024 || launch.block.z > 64 ||
      threads > info.max_threads_per_block) {
    return refuse("kernel " + info.name + ": a block of " + std::to_string(threads) +
                  " threads is too large (at most " + std::to_string(info.max_threads_per_block) + ")");
  }
  if (launch.grid.x > 0x7fffffff || launch.grid.y > 65535 || launch.grid.z > 65535)
    return refuse("grid is too large");
  if (const Dim3 need = info.required_block;
      need.x != 0 && (need.x != launch.block.x || need.y != launch.block.y || need.z != launch.block.z)) {
    return refuse("kernel " + info.name + " requires another block size");
  }
  if (launch.parameters.size() < info.parameter_bytes) {
    return refuse("kernel " + info.name + " takes " + std::to_string(info.parameter_bytes) +
                  " bytes of parameters, " + std::to_string(launch.parameters.size()) + " given");
  }
  // Each time: the process may have put a handler of its own in front of ours since.
  install_signal_handlers();
  LaunchState state;
  state.request = &launch;
  state.memory = &memory;
  state.services = &services;
  state.program = &program;
  state.image = &launch.image->parts();
  state.kernel = &kernel;
  state.info = &info;
  if (KernelCompiler* const compiler = compiler_of(program)) state.compiled = compiler->find(launch);
  state.blocks = blocks_xy * launch.grid.z;
  state.threads_per_block = static_cast<uint32_t>(threads);
  state.shared_bytes = kernel.dynamic_shared_offset + launch.dynamic_shared_bytes;
  if (state.shared_bytes > max_shared_bytes) return refuse("too much shared memory");
  const uint64_t stack = kernel.stack_bytes + (kernel.unbounded_stack ? launch.stack_bytes : 0);
  const uint64_t unit = std::max<uint64_t>(64, kernel.local_alignment);  // of each thread's local memory
  state.local_stride = (stack + unit - 1) / unit * unit;
  state.grid_id = ++state_->grids;
  state.multiprocessors = this->threads();
  if (launch.time_limit.count() > 0) state.deadline = device_now() + launch.time_limit;
  state.parameters.assign(launch.parameters.begin(), launch.parameters.end());
  state.parameters.resize((state.parameters.size() + 31) / 16 * 16);
  state.parameter_address = reinterpret_cast<uint64_t>(state.parameters.data());

  const auto helpers = static_cast<unsigned>(std::min<uint64_t>(state_->helpers.count(), state.blocks - 1));
  state_->helpers.share(helpers, [&state](uint32_t worker) { take_part(state, worker); });
  if (KernelCompiler* const compiler = compiler_of(program)) compiler->launched(launch, state.executed);
  const gpupool::MutexLock lock(state.mutex);
  LaunchResult result{state.fault, std::move(state.detail), state.late, state.executed};
  if (result.fault == Fault::none && state.blocks_finished < state.blocks) {
    result.fault = Fault::timeout;
    result.detail = "kernel " + info.name + " was cancelled";
  }
  return result;
}

uint64_t read_clock(const Warp& warp) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  (void)warp;
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t read_global_timer() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace softgpu
