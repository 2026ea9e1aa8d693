#include "softgpu/differential/engines.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

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
      machine.run("k", {program.grid, program.block, 0}, std::as_bytes(std::span(&parameters, 1)), kStepLimit);
    } catch (const reference::Undefined& undefined) {
      return undefined.what();
    } catch (const CompileError& error) {
      return "line " + std::to_string(error.line) + ": " + error.what();
    }
    return "";
  }
};

// Ends a launch that takes far longer than any of these programs may.
class Watchdog {
 public:
  explicit Watchdog(std::atomic<bool>& cancel)
      : thread_([this, &cancel] {
          std::unique_lock lock(mutex_);
          if (!ended_.wait_for(lock, std::chrono::seconds(20), [this] { return done_; })) cancel = true;
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

class SoftwareGpu : public Engine {
 public:
  explicit SoftwareGpu(const std::string& name) : Engine(name) {}
  std::string run(const Program& program, const std::string& text, std::span<std::byte> arena) override {
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
    std::atomic<bool> cancel = false;
    Launch launch;
    launch.image = image.get();
    launch.kernel = *compiled.program->find_kernel("k");
    launch.grid = program.grid;
    launch.block = program.block;
    launch.parameters = std::as_bytes(std::span(&parameters, 1));
    launch.cancel = &cancel;
    MemoryMap memory;
    memory.primary_begin = reinterpret_cast<uint64_t>(arena.data());
    memory.primary_end = memory.primary_begin + arena.size();
    LaunchResult result;
    {
      const Watchdog watchdog(cancel);
      result = executor_.run(launch, memory, {});
    }
    return result.fault == Fault::none ? "" : "fault: " + result.detail;
  }

 private:
  Executor executor_{1};
};

}  // namespace

Arena::Arena() : begin_(static_cast<std::byte*>(std::aligned_alloc(4096, (layout::kBytes + 4095) / 4096 * 4096))) {}
Arena::~Arena() {
  std::free(begin_);
}

std::unique_ptr<Engine> reference_engine() {
  return std::make_unique<Reference>();
}

std::vector<std::unique_ptr<Engine>> engines_under_test() {
  std::vector<std::unique_ptr<Engine>> made;
  made.push_back(std::make_unique<SoftwareGpu>("tier 0"));
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
