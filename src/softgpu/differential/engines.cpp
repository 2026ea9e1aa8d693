#include "softgpu/differential/engines.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "softgpu/exec/instruction_set.h"
#include "softgpu/exec/opcode_table.h"
#include "softgpu/ptx/error.h"
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
    constexpr uint64_t kStepLimit = 2'000'000;
    const Parameters parameters = parameters_of(program, arena);
    try {
      const ptx::Module module = ptx::parse(text);
      reference::Machine machine(module, arena);
      machine.run("k", {program.grid, program.block, 0}, std::as_bytes(std::span(&parameters, 1)),
                  kStepLimit);
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
    constexpr int kTicks = 200;  // of 100 ms
    uint64_t seen = 0;
    int ticks = 0;
    while (!ended_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const uint64_t now = launches_;
      ticks = now == seen ? ticks + 1 : 0;
      seen = now;
      if (ticks > kTicks) cancel_ = true;
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

class SoftwareGpu : public Engine {
 public:
  SoftwareGpu(const std::string& name, std::string instruction_set)
      : Engine(name), instruction_set_(std::move(instruction_set)) {}
  std::string run(const Program& program, const std::string& text, std::span<std::byte> arena) override {
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
    launch.cancel = &watchdog().begin();
    MemoryMap memory;
    memory.primary_begin = reinterpret_cast<uint64_t>(arena.data());
    memory.primary_end = memory.primary_begin + arena.size();
    const LaunchResult result = executor_.run(launch, memory, {});
    return result.fault == Fault::none ? "" : "fault: " + result.detail;
  }

 private:
  std::string instruction_set_;
  Executor executor_{1};
};

}  // namespace

Arena::Arena()
    : begin_(static_cast<std::byte*>(std::aligned_alloc(4096, (layout::kBytes + 4095) / 4096 * 4096))) {}
Arena::~Arena() {
  std::free(begin_);
}

std::unique_ptr<Engine> reference_engine() {
  return std::make_unique<Reference>();
}

std::vector<std::unique_ptr<Engine>> engines_under_test() {
  std::vector<std::unique_ptr<Engine>> made;
  const char* const jit = std::getenv("GPUPOOL_SOFTGPU_JIT");
  if (jit != nullptr && std::string_view(jit) == "always") {
    made.push_back(std::make_unique<SoftwareGpu>("tier 1", instruction_sets().back()));
    return made;
  }
  for (const std::string& set : instruction_sets()) {
    made.push_back(std::make_unique<SoftwareGpu>("tier 0 (" + set + ")", set));
  }
  return made;
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
