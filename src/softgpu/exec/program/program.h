// The decoded program: what lowering makes and the interpreter runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "softgpu/exec/program/checked_access.h"
#include "softgpu/exec/program/engine.h"
#include "softgpu/exec/program/reached_marks.h"
#include "softgpu/exec/program/source_map.h"
#include "softgpu/ptx/types.h"

namespace softgpu {

struct Warp;
struct Instruction;
struct LoweredFunction;
using Handler = void (*)(Warp&, const Instruction&);

inline constexpr uint32_t cluster_barrier = 16;  // of a block's barriers; PTX numbers the others

// One decoded instruction. Register operands are byte offsets into the frame's register file, where
// every register is an array over the 32 lanes (predicates: one 32-bit mask). Immediates, addresses of
// variables and constant special registers are registers too, filled before the frame runs, so that a
// handler knows only one kind of operand.
struct Instruction {
  Handler handler = nullptr;
  int64_t immediate = 0;           // address offset, branch target, ... : the handler's business
  const uint32_t* list = nullptr;  // registers of vector operands
  uint32_t op[6] = {};             // destinations first, then sources
  uint32_t guard = 0;              // 0: none; else predicate offset / 4 + 1, times two, plus 1 if negated
  uint32_t aux = 0;                // variant, the handler's business
  uint32_t line = 0;               // in the PTX source
  uint16_t list_size = 0;
  uint16_t source = 0;  // which of the program's sources
};

enum class SpecialRegister : uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  lanemask_eq,
  lanemask_le,
  lanemask_lt,
  lanemask_ge,
  lanemask_gt,
  smid,
  nsmid,
  gridid,
  envreg_zero,
  workspace_low,
  workspace_high,
  dynamic_smem_size,
  total_smem_size,
  zero,
  one,
  zero64,
};

inline bool changes_with_block(SpecialRegister which) {
  return which == SpecialRegister::ctaid_x || which == SpecialRegister::ctaid_y ||
         which == SpecialRegister::ctaid_z;
}

// What a constant slot of a frame holds.
struct Constant {
  enum class Kind : uint8_t {
    immediate,
    global,
    shared,
    dynamic_shared,
    special,
    parameter
  } kind = Kind::immediate;
  SpecialRegister special = SpecialRegister::zero;
  uint8_t lane_bytes = 4;       // 2, 4, 8 or 16
  uint8_t parameter_bytes = 0;  // kernel parameter: how much to read at offset `value` of the buffer
  bool sign_extends = false;
  uint32_t offset = 0;  // in the register file
  uint32_t symbol = 0;  // index into ProgramParts::globals or shared_variables
  uint64_t value = 0;   // the immediate, or what is added to the symbol's address
  friend bool operator==(const Constant&, const Constant&) = default;
};

struct CallArgument {
  uint32_t caller_offset, callee_offset, bytes;  // in the two frames' local memory
};

struct CallSite {
  uint32_t function = 0;  // indirect_call: the target is in a register
  uint32_t builtin = 0;   // 1 + index into the builtin table, 0 if none
  std::vector<CallArgument> arguments, results;
  uint32_t callee_bytes = 0;  // of the callee's local memory that both together take
};
inline constexpr uint32_t indirect_call = ~0u;

struct Function {
  std::string name;
  bool is_entry = false;
  std::vector<Instruction> code;
  // How many instructions from each one on run without a look at guards and groups; the last may jump.
  std::vector<uint16_t> straight;
  std::vector<uint32_t> lists;  // Instruction::list points in here
  std::vector<std::vector<uint32_t>> branch_tables;
  std::vector<CallSite> call_sites;
  std::vector<CheckedAccess> checked;  // accesses under checks, see checks/checked_access.h
  std::vector<Constant> constants;
  std::vector<Constant> block_constants;  // those of `constants` that differ from block to block
  uint32_t register_bytes = 0;            // size of a frame's register file for one warp
  uint32_t local_bytes = 0;               // per thread: formal parameters, .local and .param variables
  uint32_t local_alignment = 16;          // of where that begins
  uint32_t registers = 0;                 // 32-bit registers per thread
  std::shared_ptr<const LoweredFunction> lowered;  // entries: what tier 1 compiles
  std::shared_ptr<ReachedMarks> reached;           // entries: by the interpreter, for tier 1
};

struct SharedVariable {
  std::string name;
  uint64_t bytes = 0, alignment = 1;
  bool dynamic = false;  // `.extern .shared name[]`: the launch says how many bytes
};

struct GlobalVariable {
  GlobalInfo info;
  bool visible = false;
  bool managed = false;
  std::vector<std::byte> initial;  // shorter than info.size: the rest is zero
  struct Relocation {
    uint64_t offset;   // in the variable
    uint32_t bytes;    // width of the element
    uint32_t symbol;   // global index
    bool is_function;  // symbol is a function index
    uint64_t addend, mask;
  };
  std::vector<Relocation> relocations;
};

struct Kernel {
  uint32_t function = 0;
  std::unordered_map<uint32_t, uint64_t> shared_offsets;  // shared variable -> offset in shared memory
  uint64_t dynamic_shared_offset = 0;                     // where `.extern .shared` arrays begin
  uint64_t static_shared_bytes = 0;
  uint64_t shared_alignment = 16;  // of a block's shared memory
  uint64_t local_alignment = 16;   // of a thread's local memory
  uint32_t stack_bytes = 0;        // local memory that the call tree needs, per thread
  bool unbounded_stack = false;    // recursion or indirect calls
  std::vector<bool> reached;       // by function: what it may call, and so has what they need
};

struct ProgramParts {
  std::vector<Function> functions;
  std::vector<GlobalVariable> globals;
  std::vector<SharedVariable> shared_variables;
  std::vector<Kernel> kernels;
  std::vector<KernelInfo> kernel_infos;  // parallel to kernels
  std::vector<SourceMap> source_maps;    // of the PTX sources, by Instruction::source
  std::vector<GlobalInfo> visible_globals;
  std::unordered_map<std::string, size_t> kernel_by_name, global_by_name;
  Checks checks;
};

// A function's address as kernels see it: no data can live there, so a stray access faults.
inline constexpr uint64_t function_address_tag = 0x7ffe'0000'0000'0000;

struct ImageParts {
  std::shared_ptr<const Program> program;
  GlobalStorage storage;
  std::vector<uint64_t> addresses;  // of every global
};

}  // namespace softgpu
