// Which kernels are compiled, and when: after some launches, or when a launch has executed enough; by one
// thread in the background, so that no launch waits. What the cache has comes first, then the shortest text:
// a kernel that takes LLVM seconds does not hold up those that take it milliseconds.
//
// Of a kernel that has run, only the code is compiled that its lanes have reached. If lanes come to other
// code again and again, the kernel is compiled anew, with what has been reached by then.
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
// Bytes of text on which LLVM works for a fraction of a second. So short a kernel is worth being whole: a
// long launch that comes to left-out code has the interpreter to its end.
constexpr size_t most_text_whole = 128 << 10;
constexpr uint32_t launches_in_left_out = 3;   // before a kernel is compiled anew,
constexpr uint64_t times_in_left_out = 1'000;  // or so many times of a warp
constexpr uint32_t most_compilations = 5;      // of a kernel, the last of them with all its code

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
      : mode_(options.mode),
        leaves_out_(mode_ == Mode::background || options.whole_up_to.has_value()),
        whole_up_to_(options.whole_up_to.value_or(most_text_whole)),
        cache_(options.cache_folder, problem) {}

  // Starts the compiler process now; false, with the reason, if there is none.
  bool begin(std::string& problem) { return !compiler_.identity(problem).empty(); }

  std::shared_ptr<const CompiledKernel> find(const Launch& launch) override {
    const Key key = key_of(launch);
    gpupool::MutexLock lock(mutex_);
    Entry& entry = entry_of(key, launch);
    if (mode_ == Mode::always && entry.compilations == 0) {
      ++entry.compilations;
      lock.unlock();
      auto made =
          compile({key, launch.image->program_pointer(), launch.kernel, launch.block, reached(launch)});
      lock.lock();
      entry.compiled = std::move(made);
    }
    return entry.compiled;
  }

  void launched(const Launch& launch, uint64_t warp_instructions) override {
    if (mode_ != Mode::background) return;
    const gpupool::MutexLock lock(mutex_);
    const Key key = key_of(launch);
    Entry& entry = entry_of(key, launch);
    ++entry.launches;
    entry.instructions += warp_instructions;
    if (stopping_ || entry.is_under_way || !is_worth_compiling(entry)) return;
    ++entry.compilations;
    entry.is_under_way = true;
    auto reached_now = entry.compilations < most_compilations ? reached(launch) : std::nullopt;
    waiting_.push_back(
        {key, launch.image->program_pointer(), launch.kernel, launch.block, std::move(reached_now)});
    if (!working_) {
      working_ = true;
      // Ends when nothing is left to do. The process may end meanwhile; the compiler is never destroyed.
      std::thread([this] { work_off(); }).detach();
    }
  }

  // Begins nothing new and gives up what is under way: the process ends.
  void stop() {
    // A child that the process has forked has neither the thread nor the right to end its parent's compiler.
    if (getpid() != owner_) return;
    gpupool::MutexLock lock(mutex_);
    stopping_ = true;  // other threads may go on launching until the process is gone
    waiting_.clear();
    drafts_.clear();
    compiler_.abandon();
    idle_.wait(mutex_, [this]() REQUIRES(mutex_) { return !working_; });
  }

 private:
  using Key = std::tuple<const Program*, size_t, uint32_t, uint32_t, uint32_t>;
  struct Entry {
    std::weak_ptr<const Program> program;
    uint64_t launches = 0, instructions = 0;
    uint32_t compilations = 0;  // asked for
    bool is_under_way = false;
    std::shared_ptr<const CompiledKernel> compiled;
    // Since it was compiled.
    uint64_t times_in_left_out = 0;
    uint32_t launches_in_left_out = 0;
  };
  struct Work {
    Key key;
    std::shared_ptr<const Program> program;
    size_t kernel;
    Dim3 block;
    std::optional<std::vector<bool>> reached;  // FlowGraph; nothing: compile all code
  };
  // On its way to machine code: the text that was made of it, and what its body needs besides.
  struct Draft {
    Work work;
    std::string name, symbol, text;
    std::unique_ptr<const TierFunction> tier;
    std::unique_ptr<const FlowGraph> graph;
    std::vector<jit::Entry> entries;
    std::vector<std::vector<SavedRegister>> exits;
    ReadConstants constants;
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

  // What is compiled of the kernel if it is long; nothing: all of it.
  [[nodiscard]] std::optional<std::vector<bool>> reached(const Launch& launch) const {
    if (!leaves_out_) return std::nullopt;
    const ProgramParts& parts = launch.image->program().parts();
    return parts.functions[parts.kernels[launch.kernel].function].reached->seen();
  }

  // Once more only if there is something to be had from it: a kernel that stays interpreted has no body.
  static bool is_worth_compiling(Entry& entry) {
    if (entry.compilations == 0)
      return entry.launches >= worthwhile_launches || entry.instructions >= worthwhile_instructions;
    if (entry.compiled == nullptr || entry.compilations >= most_compilations) return false;
    const uint64_t times = entry.compiled->times_in_left_out();
    if (times != entry.times_in_left_out) ++entry.launches_in_left_out;
    entry.times_in_left_out = times;
    return entry.launches_in_left_out >= launches_in_left_out || times >= times_in_left_out;
  }

  void work_off() {
    gpupool::MutexLock lock(mutex_);
    for (;;) {
      if (!waiting_.empty()) {
        Work work = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        std::optional<Draft> draft = draft_of(work);
        void* const body = draft ? known_body(*draft) : nullptr;
        lock.lock();
        if (draft && body == nullptr) {
          drafts_.push_back(std::move(*draft));
        } else {
          settle(work.key, work.program, draft ? kernel_of(std::move(*draft), body) : nullptr);
        }
      } else if (!drafts_.empty()) {
        const auto shortest =
            std::min_element(drafts_.begin(), drafts_.end(),
                             [](const Draft& a, const Draft& b) { return a.text.size() < b.text.size(); });
        Draft draft = std::move(*shortest);
        drafts_.erase(shortest);
        const Key key = draft.work.key;
        const auto program = draft.work.program;
        lock.unlock();
        void* const body = new_body(draft);
        lock.lock();
        settle(key, program, body != nullptr ? kernel_of(std::move(draft), body) : nullptr);
      } else {
        break;
      }
    }
    working_ = false;
    idle_.notify_all();
  }

  // Without a new body, an old one stays.
  void settle(const Key& key, const std::shared_ptr<const Program>& program,
              std::shared_ptr<const CompiledKernel> made) REQUIRES(mutex_) {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.program.lock() != program) return;
    Entry& entry = found->second;
    entry.is_under_way = false;
    entry.times_in_left_out = entry.launches_in_left_out = 0;
    if (made != nullptr) {
      entry.compiled = std::move(made);
    } else {
      entry.compilations = most_compilations;
    }
  }

  std::shared_ptr<const CompiledKernel> compile(const Work& work) {
    std::optional<Draft> draft = draft_of(work);
    if (!draft) return nullptr;
    void* body = known_body(*draft);
    if (body == nullptr) body = new_body(*draft);
    return body != nullptr ? kernel_of(std::move(*draft), body) : nullptr;
  }

  // Nothing if the kernel stays interpreted.
  std::optional<Draft> draft_of(const Work& work) {
    const ProgramParts& parts = work.program->parts();
    const Kernel& kernel = parts.kernels[work.kernel];
    const Function& original = parts.functions[kernel.function];
    Draft draft;
    draft.work = work;
    draft.name = "kernel " + original.name + " for blocks of (" + std::to_string(work.block.x) + ", " +
                 std::to_string(work.block.y) + ", " + std::to_string(work.block.z) + ")";
    auto stays_interpreted = [&](const std::string& why) {
      log(draft.name + " stays interpreted: " + why);
      return std::nullopt;
    };
    if (original.lowered->code.size() > most_instructions)
      return stays_interpreted("it has " + std::to_string(original.lowered->code.size()) + " instructions");
    draft.tier = std::make_unique<const TierFunction>(*original.lowered, original);
    const auto write = [&](const std::vector<bool>* reached) {
      draft.graph = std::make_unique<const FlowGraph>(*original.lowered, reached);
      Emitter emitter(*draft.graph, *draft.tier, kernel, work.block);
      std::optional<std::string> made = emitter.run("kernel");
      if (!made) return false;
      draft.text = std::move(*made);
      draft.entries = emitter.entries();
      draft.exits = emitter.exits();
      draft.constants = emitter.read_constants();
      return true;
    };
    bool written = write(nullptr);
    if (work.reached && (!written || draft.text.size() > whole_up_to_)) written = write(&*work.reached);
    if (!written) return stays_interpreted("its lanes may wait in too many places");
    std::string error;
    const std::string identity = compiler_.identity(error);
    if (identity.empty()) return stays_interpreted(error);
    gpupool::Sha256 digest;
    for (const std::string* const part : {static_cast<const std::string*>(&draft.text), &identity})
      digest.update(std::as_bytes(std::span(*part)));
    draft.symbol = "k" + gpupool::hex(digest.finish());
    draft.text.replace(draft.text.find("@kernel("), 8, "@" + draft.symbol + "(");
    if (const char* const folder = std::getenv("GPUPOOL_SOFTGPU_JIT_DUMP")) {
      if (FILE* const file =
              std::fopen((std::string(folder) + "/" + original.name.substr(0, 60) + ".ll").c_str(), "w")) {
        std::fwrite(draft.text.data(), 1, draft.text.size(), file);
        std::fclose(file);
      }
    }
    return draft;
  }

  // The machine code that was made for the same text before, in this process or another.
  void* known_body(const Draft& draft) {
    const gpupool::MutexLock lock(loaded_mutex_);
    void*& body = loaded_[draft.symbol];
    if (body != nullptr) return body;
    std::string error;
    if (const auto object = cache_.load(draft.symbol)) body = load_object(*object, draft.symbol, error);
    if (body != nullptr) log(draft.name + " from the cache");
    return body;
  }

  // Kernels of other names may have the same text, which is compiled once.
  void* new_body(const Draft& draft) {
    {
      const gpupool::MutexLock lock(loaded_mutex_);
      if (void* const body = loaded_[draft.symbol]; body != nullptr) return body;
    }
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    std::string error;
    const auto object = compiler_.compile(draft.text, error);
    const gpupool::MutexLock lock(loaded_mutex_);
    void*& body = loaded_[draft.symbol];
    if (body != nullptr) return body;
    if (object) body = load_object(*object, draft.symbol, error);
    if (body == nullptr) {
      log(draft.name + " stays interpreted: " + error);
      return nullptr;
    }
    cache_.store(draft.symbol, *object);
    const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
    log(draft.name + " compiled in " + std::to_string(passed.count()) + " ms, of " +
        std::to_string(draft.text.size()) + " bytes of text");
    return body;
  }

  static std::shared_ptr<const CompiledKernel> kernel_of(Draft draft, void* body) {
    return std::make_shared<CompiledBody>(std::move(draft.tier), *draft.graph, std::move(draft.entries),
                                          std::move(draft.exits), std::move(draft.constants),
                                          reinterpret_cast<Body>(body));
  }

  const Mode mode_;
  const bool leaves_out_;
  const size_t whole_up_to_;
  CompilerProcess compiler_;
  const pid_t owner_ = getpid();
  const CodeCache cache_;
  gpupool::Mutex mutex_;
  std::map<Key, Entry> entries_ GUARDED_BY(mutex_);
  std::deque<Work> waiting_ GUARDED_BY(mutex_);
  std::vector<Draft> drafts_ GUARDED_BY(mutex_);
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
