// Which kernels are compiled, and when: after some launches, or when a launch has executed enough; by one
// thread in the background, so that no launch waits.
#include "softgpu/exec/compiled_kernel.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <tuple>

#include "digest/sha256.h"
#include "softgpu/exec/program.h"
#include "softgpu/jit/compiled_block.h"
#include "softgpu/jit/emitter.h"
#include "softgpu/jit/llvm.h"
#include "softgpu/jit/object_code.h"

namespace softgpu::jit {
namespace {

constexpr uint64_t kLaunches = 3;             // before a kernel is worth compiling,
constexpr uint64_t kInstructions = 200'000;   // or so many warp instructions of all its launches
constexpr size_t kMostInstructions = 20'000;  // of a kernel that is compiled

enum class Mode : uint8_t { off, background, always };

Mode mode_from_environment() {
  const char* const text = std::getenv("GPUPOOL_SOFTGPU_JIT");
  const std::string_view wish = text != nullptr ? text : "";
  if (wish == "off" || wish == "0") return Mode::off;
  if (wish == "always") return Mode::always;
  return Mode::background;
}

void log(const std::string& text) {
  static const bool wanted = [] {
    const char* const names = std::getenv("GPUPOOL_SOFTGPU_LOG");
    return names != nullptr && std::string_view(names).find("jit") != std::string_view::npos;
  }();
  if (wanted) std::fprintf(stderr, "softgpu: jit: %s\n", text.c_str());
}

std::string hexadecimal(const gpupool::Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[std::to_integer<int>(byte) >> 4];
    text += kDigits[std::to_integer<int>(byte) & 15];
  }
  return text;
}

class Compiler : public KernelCompiler {
 public:
  explicit Compiler(Mode mode, const Llvm& llvm) : mode_(mode), llvm_(llvm) {}

  std::shared_ptr<const CompiledKernel> find(const Launch& launch) override {
    const Key key = key_of(launch);
    std::unique_lock lock(mutex_);
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
    const std::lock_guard lock(mutex_);
    Entry& entry = entry_of(key_of(launch), launch);
    ++entry.launches;
    entry.instructions += warp_instructions;
    if (entry.asked || (entry.launches < kLaunches && entry.instructions < kInstructions)) return;
    entry.asked = true;
    waiting_.push_back(Work{key_of(launch), launch.image->program_pointer(), launch.kernel, launch.block});
    if (!working_) {
      working_ = true;
      // Ends when nothing is left to do. The process may end meanwhile; the compiler is never destroyed.
      std::thread([this] { work(); }).detach();
    }
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
  Entry& entry_of(const Key& key, const Launch& launch) {
    Entry& entry = entries_[key];
    if (entry.program.lock() != launch.image->program_pointer()) {
      entry = Entry{};
      entry.program = launch.image->program_pointer();
      std::erase_if(entries_, [](const auto& other) { return other.second.program.expired(); });
    }
    return entry;
  }

  void work() {
    std::unique_lock lock(mutex_);
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
  }

  std::shared_ptr<const CompiledKernel> compile(const std::shared_ptr<const Program>& program,
                                                size_t kernel_index, Dim3 block) {
    const auto begin = std::chrono::steady_clock::now();
    auto milliseconds = [&] {
      return std::to_string(
          std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin)
              .count());
    };
    const ProgramParts& parts = program->parts();
    const Kernel& kernel = parts.kernels[kernel_index];
    const Function& original = parts.functions[kernel.function];
    const std::string name = "kernel " + original.name;
    if (original.lowered->code.size() > kMostInstructions) {
      log(name + " stays interpreted: it has " + std::to_string(original.lowered->code.size()) +
          " instructions");
      return nullptr;
    }
    auto tier = std::make_unique<const TierFunction>(*original.lowered, original);
    const FlowGraph graph(*original.lowered);
    Emitter emitter(graph, *tier, kernel, block);
    std::string text = emitter.run("kernel");
    gpupool::Sha256 digest;
    for (const std::string* const part : {static_cast<const std::string*>(&text), &llvm_.identity()})
      digest.update(std::as_bytes(std::span(*part)));
    const std::string symbol = "k" + hexadecimal(digest.finish());
    text.replace(text.find("@kernel("), 8, "@" + symbol + "(");
    const std::string after_text = milliseconds();
    if (const char* const folder = std::getenv("GPUPOOL_SOFTGPU_JIT_DUMP")) {
      if (FILE* const file =
              std::fopen((std::string(folder) + "/" + original.name.substr(0, 60) + ".ll").c_str(), "w")) {
        std::fwrite(text.data(), 1, text.size(), file);
        std::fclose(file);
      }
    }
    std::string error;
    const std::lock_guard lock(loaded_mutex_);
    void*& body = loaded_[symbol];
    if (body == nullptr) {
      const auto object = llvm_.compile(text, error);
      if (object) body = load_object(*object, symbol, error);
    }
    if (body == nullptr) {
      log(name + " stays interpreted: " + error);
      return nullptr;
    }
    log(name + " for blocks of (" + std::to_string(block.x) + ", " + std::to_string(block.y) + ", " +
        std::to_string(block.z) + ") compiled in " + milliseconds() + " ms (text after " + after_text +
        " ms)");
    return std::make_shared<CompiledBody>(program, std::move(tier), graph, emitter.entries(),
                                          reinterpret_cast<Body>(body));
  }

  const Mode mode_;
  const Llvm& llvm_;
  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::deque<Work> waiting_;
  bool working_ = false;
  std::mutex loaded_mutex_;
  std::map<std::string, void*> loaded_;  // by symbol: code stays when its program goes
};

}  // namespace
}  // namespace softgpu::jit

namespace softgpu {

KernelCompiler* kernel_compiler() {
  static KernelCompiler* const made = []() -> KernelCompiler* {
    const jit::Mode mode = jit::mode_from_environment();
    if (mode == jit::Mode::off) return nullptr;
    std::string why;
    const jit::Llvm* const llvm = jit::Llvm::get(why);
    if (llvm == nullptr) {
      jit::log("off: " + why);
      return nullptr;
    }
    return new jit::Compiler(mode, *llvm);
  }();
  return made;
}

}  // namespace softgpu
