// From a kernel to its machine code: the text that is made of it, what is there of it already, and LLVM.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "softgpu/exec/program/program.h"
#include "softgpu/jit/code_cache.h"
#include "softgpu/jit/compiled_block.h"
#include "softgpu/jit/compiler_process.h"

namespace softgpu::jit {

// A kernel that is to be compiled for one shape of block.
struct Task {
  std::shared_ptr<const Program> program;
  size_t kernel = 0;
  Dim3 block;
  std::optional<std::vector<bool>> reached;  // FlowGraph, if it is long; nothing: all its code
};

// On its way to machine code: its text, and what its body needs besides.
struct Draft {
  Task task;
  std::string name, symbol, text;
  std::unique_ptr<const TierFunction> tier;
  std::unique_ptr<const FlowGraph> graph;
  std::vector<Entry> entries;
  std::vector<std::vector<SavedRegister>> exits;
  ReadConstants constants;
};

class CodeMaker {
 public:
  // `problem` says why machine code is not kept. Kernels with more bytes of text are made as far as reached.
  CodeMaker(const std::string& cache_folder, size_t whole_up_to, std::string& problem)
      : whole_up_to_(whole_up_to), cache_(cache_folder, problem) {}

  // Starts LLVM's process now; false, with the reason, if there is none.
  bool begin(std::string& problem) { return !compiler_.identity(problem).empty(); }
  // Nothing if the kernel stays interpreted.
  std::optional<Draft> draft(const Task& task);
  // The machine code that was made of the same text before, in this process or another; null: none.
  void* known_body(const Draft& draft);
  // By LLVM, unless a kernel of another name with the same text was quicker. Null if that fails.
  void* new_body(const Draft& draft);
  static std::shared_ptr<const CompiledKernel> kernel_of(Draft draft, void* body);
  // Ends what LLVM is at, also while another thread waits for it; nothing is compiled any more.
  void abandon() { compiler_.abandon(); }

 private:
  const size_t whole_up_to_;
  CompilerProcess compiler_;
  const CodeCache cache_;
  gpupool::Mutex mutex_;
  std::map<std::string, void*> loaded_ GUARDED_BY(mutex_);  // by symbol: code stays when its program goes
};

// On standard error, if GPUPOOL_SOFTGPU_LOG asks for it.
void log(const std::string& text);

}  // namespace softgpu::jit
