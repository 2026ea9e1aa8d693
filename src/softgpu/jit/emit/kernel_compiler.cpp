// Which kernels are compiled, and when: after some launches, or when a launch has executed enough; by one
// thread in the background, so that no launch waits. What the cache has comes first, then the shortest text:
// a kernel that takes LLVM seconds does not hold up those that take it milliseconds.
//
// Of a kernel that has run, only the code is compiled that its lanes have reached. If lanes come to other
// code again and again, the kernel is compiled anew, with what has been reached by then.
#include "softgpu/jit/emit/kernel_compiler.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <tuple>

#include "base/mutex.h"
#include "softgpu/exec/program/program.h"
#include "softgpu/jit/emit/code_maker.h"

namespace softgpu::jit {
namespace {

constexpr uint64_t worthwhile_launches = 3;            // before a kernel is worth compiling,
constexpr uint64_t worthwhile_instructions = 200'000;  // or so many warp instructions of all its launches
// Bytes of text on which LLVM works for a fraction of a second. So short a kernel is worth being whole: a
// long launch that comes to left-out code has the interpreter to its end.
constexpr size_t most_text_whole = 128 << 10;
constexpr uint32_t launches_in_left_out = 3;   // before a kernel is compiled anew,
constexpr uint64_t times_in_left_out = 1'000;  // or so many times of a warp
constexpr uint32_t most_compilations = 5;      // of a kernel, the last of them with all its code

class Compiler : public KernelCompiler {
 public:
  Compiler(const CompilerOptions& options, std::string& problem)
      : mode_(options.mode),
        leaves_out_(mode_ == Mode::background || options.whole_up_to.has_value()),
        maker_(options.cache_folder, options.whole_up_to.value_or(most_text_whole), problem) {}

  // Starts the compiler process now; false, with the reason, if there is none.
  bool begin(std::string& problem) { return maker_.begin(problem); }

  std::shared_ptr<const CompiledKernel> find(const Launch& launch) override {
    const Key key = key_of(launch);
    gpupool::MutexLock lock(mutex_);
    Entry& entry = entry_of(key, launch);
    if (mode_ == Mode::always && entry.compilations == 0) {
      ++entry.compilations;
      lock.unlock();
      auto made = compile(task_of(launch, reached(launch)));
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
    waiting_.push_back({key, task_of(launch, std::move(reached_now))});
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
    ready_.clear();
    maker_.abandon();
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
  struct Waiting {
    Key key;
    Task task;
  };
  struct Ready {  // for LLVM
    Key key;
    Draft draft;
  };

  static Key key_of(const Launch& launch) {
    return {&launch.image->program(), launch.kernel, launch.block.x, launch.block.y, launch.block.z};
  }
  static Task task_of(const Launch& launch, std::optional<std::vector<bool>> reached) {
    return {launch.image->program_pointer(), launch.kernel, launch.block, std::move(reached)};
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
    while (!stopping_ && (!waiting_.empty() || !ready_.empty())) {
      if (waiting_.empty()) {
        const auto shortest = std::min_element(
            ready_.begin(), ready_.end(),
            [](const Ready& a, const Ready& b) { return a.draft.text.size() < b.draft.text.size(); });
        Ready next = std::move(*shortest);
        ready_.erase(shortest);
        lock.unlock();
        void* const body = maker_.new_body(next.draft);
        lock.lock();
        settle(next.key, std::move(next.draft), body);
        continue;
      }
      const Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      std::optional<Draft> draft = maker_.draft(next.task);
      void* const body = draft ? maker_.known_body(*draft) : nullptr;
      lock.lock();
      if (draft && body == nullptr) {
        ready_.push_back({next.key, std::move(*draft)});
      } else if (draft) {
        settle(next.key, std::move(*draft), body);
      } else {
        give_up(next.key, next.task.program);
      }
    }
    working_ = false;
    idle_.notify_all();
  }

  // Its entry, unless its program has gone meanwhile.
  Entry* entry_of(const Key& key, const std::shared_ptr<const Program>& program) REQUIRES(mutex_) {
    const auto found = entries_.find(key);
    return found != entries_.end() && found->second.program.lock() == program ? &found->second : nullptr;
  }

  void settle(const Key& key, Draft draft, void* body) REQUIRES(mutex_) {
    if (body == nullptr) return give_up(key, draft.task.program);
    Entry* const entry = entry_of(key, draft.task.program);
    if (entry == nullptr) return;
    entry->is_under_way = false;
    entry->times_in_left_out = entry->launches_in_left_out = 0;
    entry->compiled = CodeMaker::kernel_of(std::move(draft), body);
  }

  // An old body stays, and there will be no other.
  void give_up(const Key& key, const std::shared_ptr<const Program>& program) REQUIRES(mutex_) {
    Entry* const entry = entry_of(key, program);
    if (entry == nullptr) return;
    entry->is_under_way = false;
    entry->compilations = most_compilations;
  }

  std::shared_ptr<const CompiledKernel> compile(const Task& task) {
    std::optional<Draft> draft = maker_.draft(task);
    if (!draft) return nullptr;
    void* body = maker_.known_body(*draft);
    if (body == nullptr) body = maker_.new_body(*draft);
    return body != nullptr ? CodeMaker::kernel_of(std::move(*draft), body) : nullptr;
  }

  const Mode mode_;
  const bool leaves_out_;
  CodeMaker maker_;
  const pid_t owner_ = getpid();
  gpupool::Mutex mutex_;
  std::map<Key, Entry> entries_ GUARDED_BY(mutex_);
  std::deque<Waiting> waiting_ GUARDED_BY(mutex_);
  std::vector<Ready> ready_ GUARDED_BY(mutex_);
  bool working_ GUARDED_BY(mutex_) = false, stopping_ GUARDED_BY(mutex_) = false;
  gpupool::CondVar idle_;
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
