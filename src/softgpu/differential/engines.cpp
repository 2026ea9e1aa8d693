#include "softgpu/differential/engines.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "softgpu/exec/program/compiled_kernel.h"
#include "softgpu/exec/program/instruction_set.h"
#include "softgpu/exec/program/opcode_table.h"
#include "softgpu/jit/emit/kernel_compiler.h"
#include "softgpu/ptx/error.h"
#include "softgpu/ptx/fuse_products.h"
#include "softgpu/ptx/parser.h"
#include "softgpu/reference/machine.h"

namespace softgpu::differential {
namespace {

struct Parameters {
  uint64_t base;
  uint32_t uniform[2];
};
Parameters parameters_of(const Program& program, std::span<std::byte> arena) {
  return {reinterpret_cast<uint64_t>(arena.data()), {program.uniform[0], program.uniform[1]}};
}

class Reference : public Engine {
 public:
  Reference() : Engine("reference") {}
  std::string run(const Program& program, const std::string& text, std::span<std::byte> arena) override {
    constexpr uint64_t step_limit = 2'000'000;
    const Parameters parameters = parameters_of(program, arena);
    try {
      ptx::Module module = ptx::parse(text);
      ptx::fuse_products(module);
      reference::Machine machine(module, arena);
      machine.run("k", {program.grid, program.block, 0}, std::as_bytes(std::span(&parameters, 1)),
                  step_limit);
    } catch (const reference::Undefined& undefined) {
      return undefined.what();
    } catch (const CompileError& error) {
      return "line " + std::to_string(error.line) + ": " + error.what();
    }
    return "";
  }
};

// Ends a launch that takes far longer than any of these programs may. One thread for all of them: to make one
// for each takes longer than most launches.
class Watchdog {
 public:
  Watchdog() : thread_([this] { watch(); }) {}
  ~Watchdog() {
    ended_ = true;
    thread_.join();
  }
  std::atomic<bool>& begin() {
    cancel_ = false;
    ++launches_;
    return cancel_;
  }

 private:
  void watch() {
    constexpr int most_ticks = 200;  // of 100 ms
    uint64_t seen = 0;
    int ticks = 0;
    while (!ended_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const uint64_t now = launches_;
      ticks = now == seen ? ticks + 1 : 0;
      seen = now;
      if (ticks > most_ticks) cancel_ = true;
    }
  }

  std::atomic<bool> ended_ = false, cancel_ = false;
  std::atomic<uint64_t> launches_ = 0;
  std::thread thread_;
};

Watchdog& watchdog() {
  static Watchdog only;
  return only;
}

// Before a launch, so that compiled code leaves out what it has not reached.
enum class Rehearsal : uint8_t { none, one_block_of_zeros };

// What the two tiers have in common: a launch. Without a compiler it stays in the interpreter.
class Launcher {
 public:
  explicit Launcher(std::string instruction_set) : instruction_set_(std::move(instruction_set)) {}
  std::string run(const Program& program, const std::string& text, std::span<std::byte> arena,
                  KernelCompiler* compiler, Rehearsal rehearsal = Rehearsal::none) {
    const InstructionSetScope scope(instruction_set_);
    const std::string_view source = text;
    const CompileResult compiled = compile(std::span(&source, 1));
    if (compiled.program == nullptr) return "does not compile: " + compiled.log;
    const auto image = Image::create(
        compiled.program, {[](size_t size, size_t alignment) {
                             const size_t a = alignment < 64 ? 64 : alignment;
                             return reinterpret_cast<uint64_t>(std::aligned_alloc(a, (size + a - 1) / a * a));
                           },
                           [](uint64_t p, size_t) { std::free(reinterpret_cast<void*>(p)); }});
    const Parameters parameters = parameters_of(program, arena);
    Launch launch;
    launch.image = image.get();
    launch.kernel = *compiled.program->find_kernel("k");
    launch.grid = program.grid;
    launch.block = program.block;
    launch.parameters = std::as_bytes(std::span(&parameters, 1));
    MemoryMap memory;
    memory.primary_begin = reinterpret_cast<uint64_t>(arena.data());
    memory.primary_end = memory.primary_begin + arena.size();
    if (rehearsal == Rehearsal::one_block_of_zeros) rehearse(launch, memory, arena);
    set_kernel_compiler_for_tests(compiler);
    launch.cancel = &watchdog().begin();
    const LaunchResult result = executor_.run(launch, memory, {});
    return result.fault == Fault::none ? "" : "fault: " + result.detail;
  }

 private:
  // In the interpreter, which notes what lanes reach.
  void rehearse(Launch launch, const MemoryMap& memory, std::span<std::byte> arena) {
    set_kernel_compiler_for_tests(nullptr);
    const std::vector<std::byte> initial(arena.begin(), arena.end());
    std::fill(arena.begin(), arena.end(), std::byte{0});
    launch.grid = {1, 1, 1};
    launch.cancel = &watchdog().begin();
    executor_.run(launch, memory, {});
    std::copy(initial.begin(), initial.end(), arena.begin());
  }

  std::string instruction_set_;
  Executor executor_{1};
};

class Tier0 : public Engine {
 public:
  explicit Tier0(const std::string& instruction_set)
      : Engine("tier 0 (" + instruction_set + ")"), launcher_(instruction_set) {}
  std::string run(const Program& program, const std::string& text, std::span<std::byte> arena) override {
    return launcher_.run(program, text, arena, nullptr);
  }

 private:
  Launcher launcher_;
};

// Counts the launches that got machine code.
class CountingCompiler : public KernelCompiler {
 public:
  explicit CountingCompiler(std::unique_ptr<KernelCompiler> compiler) : compiler_(std::move(compiler)) {}
  std::shared_ptr<const CompiledKernel> find(const Launch& launch) override {
    auto found = compiler_->find(launch);
    // The time was LLVM's so far, and on a busy machine more than a launch may take.
    watchdog().begin();
    if (found != nullptr) ++compiled;
    return found;
  }
  void launched(const Launch& launch, uint64_t warp_instructions) override {
    compiler_->launched(launch, warp_instructions);
  }
  uint64_t compiled = 0;

 private:
  std::unique_ptr<KernelCompiler> compiler_;
};

class CompilingEngine : public Tier1 {
 public:
  CompilingEngine(const std::string& name, std::unique_ptr<KernelCompiler> compiler, Rehearsal rehearsal)
      : Tier1(name),
        launcher_(instruction_sets().back()),
        compiler_(std::move(compiler)),
        rehearsal_(rehearsal) {}
  std::string run(const Program& program, const std::string& text, std::span<std::byte> arena) override {
    ++given_;
    return launcher_.run(program, text, arena, &compiler_, rehearsal_);
  }
  [[nodiscard]] uint64_t given() const override { return given_; }
  [[nodiscard]] uint64_t compiled() const override { return compiler_.compiled; }

 private:
  Launcher launcher_;
  CountingCompiler compiler_;
  Rehearsal rehearsal_;
  uint64_t given_ = 0;
};

}  // namespace

Arena::Arena()
    : begin_(static_cast<std::byte*>(std::aligned_alloc(4096, (layout::total_bytes + 4095) / 4096 * 4096))) {}
Arena::~Arena() {
  std::free(begin_);
}

std::unique_ptr<Engine> reference_engine() {
  return std::make_unique<Reference>();
}

std::vector<std::unique_ptr<Engine>> tier_0_engines() {
  std::vector<std::unique_ptr<Engine>> made;
  for (const std::string& set : instruction_sets()) made.push_back(std::make_unique<Tier0>(set));
  return made;
}

std::unique_ptr<Tier1> tier_1_engine(Tier1Form form, std::string& problem) {
  const bool quick = form != Tier1Form::usual, in_parts = form == Tier1Form::quick_in_parts;
  jit::CompilerOptions options;
  options.mode = jit::Mode::always;
  if (in_parts) options.whole_up_to = 0;
  // The compiler's process, which is started here, reads it.
  setenv("GPUPOOL_SOFTGPU_JIT_EFFORT", quick ? "quick" : "", 1);
  auto compiler = jit::make_kernel_compiler(options, problem);
  if (compiler == nullptr) return nullptr;
  return std::make_unique<CompilingEngine>(in_parts ? "tier 1 (quick, in parts)"
                                           : quick  ? "tier 1 (quick)"
                                                    : "tier 1",
                                           std::move(compiler),
                                           in_parts ? Rehearsal::one_block_of_zeros : Rehearsal::none);
}

Outcome outcome_of(Engine& engine, const Program& program, const std::string& text,
                   const std::vector<std::byte>& initial, const Arena& arena) {
  const std::span<std::byte> bytes = arena.bytes();
  std::memcpy(bytes.data(), initial.data(), initial.size());
  Outcome outcome;
  outcome.error = engine.run(program, text, bytes);
  outcome.memory.assign(bytes.begin(), bytes.end());
  return outcome;
}

}  // namespace softgpu::differential
