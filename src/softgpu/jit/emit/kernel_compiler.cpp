// Which kernels are compiled, and when: after some launches, or when a launch has executed enough; by one
// thread in the background, so that no launch waits.
#include "softgpu/jit/emit/kernel_compiler.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <string_view>
#include <thread>
#include <tuple>

#include "base/mutex.h"
#include "base/sha256.h"
#include "softgpu/exec/program/program.h"
#include "softgpu/jit/code_cache.h"
#include "softgpu/jit/compiled_block.h"
#include "softgpu/jit/compiler_process.h"
#include "softgpu/jit/emit/emitter.h"
#include "softgpu/jit/object_code.h"

namespace softgpu::jit {
namespace {

constexpr uint64_t worthwhile_launches = 3;            // before a kernel is worth compiling,
constexpr uint64_t worthwhile_instructions = 200'000;  // or so many warp instructions of all its launches
constexpr size_t most_instructions = 20'000;           // of a kernel that is compiled

void log(const std::string& text) {
  static const bool wanted = [] {
    const char* const names = std::getenv("GPUPOOL_SOFTGPU_LOG");
    return names != nullptr && std::string_view(names).find("jit") != std::string_view::npos;
  }();
  if (wanted) std::fprintf(stderr, "softgpu: jit: %s\n", text.c_str());
}

class Compiler : public KernelCompiler {
 public:
  Compiler(const CompilerOptions& options, std::string& problem)
      : mode_(options.mode), cache_(options.cache_folder, problem) {}

  // Starts the compiler process now; false, with the reason, if there is none.
  bool begin(std::string& problem) { return !compiler_.identity(problem).empty(); }

  std::shared_ptr<const CompiledKernel> find(const Launch& launch) override {
    const Key key = key_of(launch);
    gpupool::MutexLock lock(mutex_);
    Entry& entry = entry_of(key, launch);
    if (mode_ == Mode::always && !entry.asked) {
      entry.asked = true;
      lock.unlock();
      auto made = compile(launch.image->program_pointer(), launch.kernel, launch.block);
      lock.lock();
      entry.compiled = std::move(made);
    }
    return entry.compiled;
  }

  void launched(const Launch& launch, uint64_t warp_instructions) override {
    const gpupool::MutexLock lock(mutex_);
    Entry& entry = entry_of(key_of(launch), launch);
    ++entry.launches;
    entry.instructions += warp_instructions;
    if (stopping_ || entry.asked ||
        (entry.launches < worthwhile_launches && entry.instructions < worthwhile_instructions))
      return;
    entry.asked = true;
    waiting_.push_back(Work{key_of(launch), launch.image->program_pointer(), launch.kernel, launch.block});
    if (!working_) {
      working_ = true;
      // Ends when nothing is left to do. The process may end meanwhile; the compiler is never destroyed.
      std::thread([this] { work(); }).detach();
    }
  }

  // Begins nothing new and gives up what is under way: the process ends.
  void stop() {
    // A child that the process has forked has neither the thread nor the right to end its parent's compiler.
    if (getpid() != owner_) return;
    gpupool::MutexLock lock(mutex_);
    stopping_ = true;  // other threads may go on launching until the process is gone
    waiting_.clear();
    compiler_.abandon();
    idle_.wait(mutex_, [this]() REQUIRES(mutex_) { return !working_; });
  }

 private:
  using Key = std::tuple<const Program*, size_t, uint32_t, uint32_t, uint32_t>;
  struct Entry {
    std::weak_ptr<const Program> program;
    uint64_t launches = 0, instructions = 0;
    bool asked = false;
    std::shared_ptr<const CompiledKernel> compiled;
  };
  struct Work {
    Key key;
    std::shared_ptr<const Program> program;
    size_t kernel;
    Dim3 block;
  };

  static Key key_of(const Launch& launch) {
    return {&launch.image->program(), launch.kernel, launch.block.x, launch.block.y, launch.block.z};
  }
  // An entry of a program that is gone belongs to another one at the same address.
  Entry& entry_of(const Key& key, const Launch& launch) REQUIRES(mutex_) {
    Entry& entry = entries_[key];
    if (entry.program.lock() != launch.image->program_pointer()) {
      entry = Entry{};
      entry.program = launch.image->program_pointer();
      std::erase_if(entries_, [](const auto& other) { return other.second.program.expired(); });
    }
    return entry;
  }

  void work() {
    gpupool::MutexLock lock(mutex_);
    while (!waiting_.empty()) {
      Work work = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      auto made = compile(work.program, work.kernel, work.block);
      lock.lock();
      const auto found = entries_.find(work.key);
      if (found != entries_.end() && found->second.program.lock() == work.program)
        found->second.compiled = std::move(made);
    }
    working_ = false;
    idle_.notify_all();
  }

  std::shared_ptr<const CompiledKernel> compile(const std::shared_ptr<const Program>& program,
                                                size_t kernel_index, Dim3 block) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    auto milliseconds = [&] {
      const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
      return std::to_string(passed.count());
    };
    const ProgramParts& parts = program->parts();
    const Kernel& kernel = parts.kernels[kernel_index];
    const Function& original = parts.functions[kernel.function];
    const std::string name = "kernel " + original.name;
    if (original.lowered->code.size() > most_instructions) {
      log(name + " stays interpreted: it has " + std::to_string(original.lowered->code.size()) +
          " instructions");
      return nullptr;
    }
    auto tier = std::make_unique<const TierFunction>(*original.lowered, original);
    const FlowGraph graph(*original.lowered);
    Emitter emitter(graph, *tier, kernel, block);
    std::optional<std::string> made = emitter.run("kernel");
    if (!made) {
      log(name + " stays interpreted: its lanes may wait in too many places");
      return nullptr;
    }
    std::string& text = *made;
    std::string error;
    const std::string identity = compiler_.identity(error);
    if (identity.empty()) {
      log(name + " stays interpreted: " + error);
      return nullptr;
    }
    gpupool::Sha256 digest;
    for (const std::string* const part : {static_cast<const std::string*>(&text), &identity})
      digest.update(std::as_bytes(std::span(*part)));
    const std::string symbol = "k" + gpupool::hex(digest.finish());
    text.replace(text.find("@kernel("), 8, "@" + symbol + "(");
    const std::string after_text = milliseconds();
    if (const char* const folder = std::getenv("GPUPOOL_SOFTGPU_JIT_DUMP")) {
      if (FILE* const file =
              std::fopen((std::string(folder) + "/" + original.name.substr(0, 60) + ".ll").c_str(), "w")) {
        std::fwrite(text.data(), 1, text.size(), file);
        std::fclose(file);
      }
    }
    bool cached = false;
    const gpupool::MutexLock lock(loaded_mutex_);
    void*& body = loaded_[symbol];
    if (body == nullptr) {
      if (const auto object = cache_.load(symbol)) {
        body = load_object(*object, symbol, error);
        cached = body != nullptr;
      }
    }
    if (body == nullptr) {
      const auto object = compiler_.compile(text, error);
      if (object) body = load_object(*object, symbol, error);
      if (body != nullptr) cache_.store(symbol, *object);
    }
    if (body == nullptr) {
      log(name + " stays interpreted: " + error);
      return nullptr;
    }
    log(name + " for blocks of (" + std::to_string(block.x) + ", " + std::to_string(block.y) + ", " +
        std::to_string(block.z) + ") " + (cached ? "from the cache" : "compiled") + " in " + milliseconds() +
        " ms (text after " + after_text + " ms)");
    return std::make_shared<CompiledBody>(std::move(tier), graph, emitter.entries(), emitter.exits(),
                                          reinterpret_cast<Body>(body));
  }

  const Mode mode_;
  CompilerProcess compiler_;
  const pid_t owner_ = getpid();
  const CodeCache cache_;
  gpupool::Mutex mutex_;
  std::map<Key, Entry> entries_ GUARDED_BY(mutex_);
  std::deque<Work> waiting_ GUARDED_BY(mutex_);
  bool working_ GUARDED_BY(mutex_) = false, stopping_ GUARDED_BY(mutex_) = false;
  gpupool::CondVar idle_;
  gpupool::Mutex loaded_mutex_;
  std::map<std::string, void*> loaded_
      GUARDED_BY(loaded_mutex_);  // by symbol: code stays when its program goes
};

}  // namespace

CompilerOptions options_from_environment() {
  const auto text_of = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text != nullptr ? text : "");
  };
  CompilerOptions options;
  const std::string mode = text_of("GPUPOOL_SOFTGPU_JIT"), cache = text_of("GPUPOOL_SOFTGPU_JIT_CACHE");
  if (mode == "off") {
    options.mode = Mode::off;
  } else if (mode == "always") {
    options.mode = Mode::always;
  } else if (!mode.empty() && mode != "on") {
    std::fprintf(stderr, "softgpu: GPUPOOL_SOFTGPU_JIT=%s is none of off, on, always; on it is\n",
                 mode.c_str());
  }
  if (cache != "off") options.cache_folder = cache.empty() ? default_cache_folder() : cache;
  return options;
}

std::unique_ptr<KernelCompiler> make_kernel_compiler(const CompilerOptions& options, std::string& problem) {
  auto made = std::make_unique<Compiler>(options, problem);
  // In the background it is started when the first kernel is worth it: who launches does not wait.
  if (options.mode == Mode::always && !made->begin(problem)) return nullptr;
  return made;
}

}  // namespace softgpu::jit

namespace softgpu {
namespace {

bool replaced_for_tests = false;
KernelCompiler* replacement = nullptr;

}  // namespace

void set_kernel_compiler_for_tests(KernelCompiler* compiler) {
  replaced_for_tests = true;
  replacement = compiler;
}
void reset_kernel_compiler_for_tests() {
  replaced_for_tests = false;
}

KernelCompiler* kernel_compiler() {
  if (replaced_for_tests) return replacement;
  // Never destroyed: its thread may work when the process ends.
  static KernelCompiler* const made = []() -> KernelCompiler* {
    const jit::CompilerOptions options = jit::options_from_environment();
    if (options.mode == jit::Mode::off) return nullptr;
    std::string problem;
    static KernelCompiler* compiler = nullptr;
    compiler = jit::make_kernel_compiler(options, problem).release();
    if (compiler == nullptr) {
      jit::log("off: " + problem);
    } else if (!problem.empty()) {
      jit::log("machine code is not kept: " + problem);
    }
    if (compiler != nullptr) std::atexit([] { static_cast<jit::Compiler*>(compiler)->stop(); });
    return compiler;
  }();
  return made;
}

}  // namespace softgpu
