#include "softgpu/jit/emit/code_maker.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/sha256.h"
#include "softgpu/jit/emit/emitter.h"
#include "softgpu/jit/object_code.h"

namespace softgpu::jit {
namespace {

constexpr size_t most_instructions = 20'000;  // of a kernel that is compiled

}  // namespace

void log(const std::string& text) {
  static const bool wanted = [] {
    const char* const names = std::getenv("GPUPOOL_SOFTGPU_LOG");
    return names != nullptr && std::string_view(names).find("jit") != std::string_view::npos;
  }();
  if (wanted) std::fprintf(stderr, "softgpu: jit: %s\n", text.c_str());
}

std::optional<Draft> CodeMaker::draft(const Task& task) {
  const ProgramParts& parts = task.program->parts();
  const Kernel& kernel = parts.kernels[task.kernel];
  const Function& original = parts.functions[kernel.function];
  Draft draft;
  draft.task = task;
  draft.name = "kernel " + original.name + " for blocks of (" + std::to_string(task.block.x) + ", " +
               std::to_string(task.block.y) + ", " + std::to_string(task.block.z) + ")";
  auto stays_interpreted = [&](const std::string& why) {
    log(draft.name + " stays interpreted: " + why);
    return std::nullopt;
  };
  if (original.lowered->code.size() > most_instructions)
    return stays_interpreted("it has " + std::to_string(original.lowered->code.size()) + " instructions");
  draft.tier = std::make_unique<const TierFunction>(*original.lowered, original);
  const auto write = [&](const std::vector<bool>* reached) {
    draft.graph = std::make_unique<const FlowGraph>(*original.lowered, reached);
    Emitter emitter(*draft.graph, *draft.tier, kernel, task.block);
    std::optional<std::string> made = emitter.run("kernel");
    if (!made) return false;
    draft.text = std::move(*made);
    draft.entries = emitter.entries();
    draft.exits = emitter.exits();
    draft.constants = emitter.read_constants();
    return true;
  };
  bool written = write(nullptr);
  if (task.reached && (!written || draft.text.size() > whole_up_to_)) written = write(&*task.reached);
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

void* CodeMaker::known_body(const Draft& draft) {
  const gpupool::MutexLock lock(mutex_);
  void*& body = loaded_[draft.symbol];
  if (body != nullptr) return body;
  std::string error;
  if (const auto object = cache_.load(draft.symbol)) body = load_object(*object, draft.symbol, error);
  if (body != nullptr) log(draft.name + " from the cache");
  return body;
}

void* CodeMaker::new_body(const Draft& draft) {
  {
    const gpupool::MutexLock lock(mutex_);
    if (void* const body = loaded_[draft.symbol]; body != nullptr) return body;
  }
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::string error;
  const auto object = compiler_.compile(draft.text, error);
  const gpupool::MutexLock lock(mutex_);
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

std::shared_ptr<const CompiledKernel> CodeMaker::kernel_of(Draft draft, void* body) {
  return std::make_shared<CompiledBody>(std::move(draft.tier), *draft.graph, std::move(draft.entries),
                                        std::move(draft.exits), std::move(draft.constants),
                                        reinterpret_cast<Body>(body));
}

}  // namespace softgpu::jit
