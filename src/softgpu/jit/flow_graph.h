// A lowered function as basic blocks: successors, liveness, and where execution may leave compiled code and
// come back to it.
#pragma once

#include <cstdint>
#include <vector>

#include "softgpu/exec/program/lowered.h"

namespace softgpu::jit {

// Registers, or blocks.
class Set {
 public:
  explicit Set(size_t size = 0) : words_((size + 63) / 64) {}
  [[nodiscard]] bool has(uint32_t i) const { return words_[i / 64] >> (i % 64) & 1; }
  void add(uint32_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  void remove(uint32_t i) { words_[i / 64] &= ~(uint64_t{1} << (i % 64)); }
  bool add_all(const Set& other) {  // true if that changed anything
    bool changed = false;
    for (size_t w = 0; w < words_.size(); ++w) {
      const uint64_t sum = words_[w] | other.words_[w];
      changed |= sum != words_[w];
      words_[w] = sum;
    }
    return changed;
  }
  [[nodiscard]] size_t count() const {
    size_t sum = 0;
    for (const uint64_t word : words_) sum += static_cast<size_t>(__builtin_popcountll(word));
    return sum;
  }
  [[nodiscard]] bool meets(const Set& other) const {
    for (size_t w = 0; w < words_.size(); ++w) {
      if (words_[w] & other.words_[w]) return true;
    }
    return false;
  }
  [[nodiscard]] std::vector<uint32_t> members() const {
    std::vector<uint32_t> result;
    for (size_t w = 0; w < words_.size(); ++w) {
      for (uint64_t rest = words_[w]; rest != 0; rest &= rest - 1)
        result.push_back(static_cast<uint32_t>(w * 64 + static_cast<size_t>(__builtin_ctzll(rest))));
    }
    return result;
  }

 private:
  std::vector<uint64_t> words_;
};

// What compiled code does at an instruction.
enum class Treatment : uint8_t {
  straight,   // code of its own, or a call of the interpreter's handler
  converge,   // waits for other lanes of its warp: compiled where all are there
  barrier,    // a plain barrier of the block
  interpret,  // leaves compiled code: calls, indexed branches, everything that may wait
};
[[nodiscard]] Treatment treatment(const LoweredInstruction& instruction);

struct CodeBlock {
  uint32_t begin = 0, end = 0;  // instructions
  std::vector<uint32_t> successors;
  Set live_in;
  bool resumable = false;  // compiled code can be entered here
  bool left_out = false;   // no lane has come here so far: compiled code leaves to the interpreter
  bool in_loop = false;
};

struct FlowGraph {
  // `reached`: by instruction, whether lanes have come there by a branch (ReachedMarks); null: all code
  // counts as reached.
  explicit FlowGraph(const LoweredFunction& lowered, const std::vector<bool>* reached = nullptr);
  // Registers that live before instruction i of block b.
  [[nodiscard]] Set live_before(uint32_t b, uint32_t i) const;

  const LoweredFunction& lowered;
  std::vector<CodeBlock> blocks;
  std::vector<uint32_t> block_at;  // by instruction that begins one; ~0u elsewhere
  bool has_barriers = false;       // that compiled code handles
  bool takes_addresses_of_parameters = false;
  bool has_loops = false;
  bool has_entries = false;  // a block is resumable: without, warps run from the beginning to the end

 private:
  void leave_out_unreached(const std::vector<bool>& reached);
};

}  // namespace softgpu::jit
