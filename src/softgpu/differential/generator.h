// Writes a random valid program. Valid: it ends (loops count, other cycles burn fuel), every register and
// every byte is written before it is read, member masks name those who come, barriers are reached by all, and
// nothing that PTX leaves open (a NaN's bits, an approximation, the order of atomics) flows on.
#pragma once

#include <algorithm>
#include <string>

#include "softgpu/differential/catalogue.h"
#include "softgpu/differential/program.h"
#include "softgpu/differential/random.h"

namespace softgpu::differential {

class Generator {
 public:
  // small: for an engine that takes long to compile. A few statements, and around them only what they use.
  enum class Size : uint8_t { usual, small };
  Generator(const Catalogue& catalogue, uint64_t seed, Size size)
      : catalogue_(catalogue), random_(seed), small_(size == Size::small) {
    program_.seed = seed;
  }
  Program make();

 private:
  // What is known of the threads that get to a place.
  struct Place {
    std::string mask;         // register with the lanes of the warp that get here; empty: not known
    bool whole_warp = false;  // all 32 lanes
    bool whole_block = false;
    int depth = 0;
    int function = 0;  // functions below this number may be called
  };

  // generator.cpp
  void emit(const std::string& text, bool removable = true) {
    program_.lines.push_back({text, removable, "", ""});
  }
  void emit_fixed(const std::string& text) { emit(text, false); }
  void emit_setting(const std::string& what, const std::string& text) {
    program_.lines.push_back({text, true, what, ""});
  }
  void emit_showing(const std::string& what, const std::string& text) {
    program_.lines.push_back({text, true, "", what});
  }
  template <class F>
  void group(F write) {
    const size_t first = program_.lines.size();
    write();
    program_.groups.emplace_back(first, program_.lines.size());
  }
  void declare_registers();
  void write_prologue(bool entry);
  void write_epilogue();
  void write_function(int number);
  void write_kernel(uint32_t threads);
  void write_body(const Place& place, int statements);
  void write_statement(const Place& place);
  std::string name(const char* prefix, uint64_t number) { return prefix + std::to_string(number); }
  // Addresses differ between engines where they are not of global memory: none may be left in a register.
  void forget_addresses() {
    emit_fixed("mov.b64 %tx0, 0; mov.b64 %tx1, 0; mov.b32 %tw0, 0; mov.b32 %tw1, 0;");
  }
  std::string any(int bits);  // a register of the pool
  // Of a body inside of another statement.
  int statements(uint64_t most) {
    return 1 + static_cast<int>(random_.below(small_ ? std::min<uint64_t>(most, 2) : most));
  }
  std::string fresh(const char* prefix) { return prefix + std::to_string(next_++); }

  // statements_compute.cpp
  std::string source(int bits, const reference::FloatFormat* format, bool immediates = true);
  std::string in_table(int table);
  std::string loaded(int bits, const reference::FloatFormat* format);
  std::string guard();
  void write_operation(const Place& place);
  void write_sources(const CatalogueEntry& entry, std::string& text);
  void write_canonical_nan(const reference::Operation& operation, const std::string& of);
  void write_approximation();
  void write_carries();
  void write_move();

  // statements_memory.cpp
  void write_private_access();
  void write_local_access();
  void write_atomic();
  void write_counter();
  void write_copy_async();
  void write_address_conversion();
  void write_exchange();
  void write_barrier_reduction();

  // statements_control.cpp
  void write_if(const Place& place);
  void write_loop(const Place& place);
  void write_uniform_loop(const Place& place);
  void write_switch(const Place& place);
  void write_unstructured(const Place& place);
  void write_call(const Place& place);

  // statements_warp.cpp
  void write_warp_operation(const Place& place);
  void write_shuffle(const Place& place);
  void write_election(const Place& place);

  // statements_matrix.cpp
  void write_matrix_operation(const Place& place);
  void write_mma();
  void write_matrix_access(const Place& place);

  const Catalogue& catalogue_;
  Random random_;
  bool small_;
  // Registers whose values flow from statement to statement.
  const uint64_t halves_ = small_ ? 2 : 5, words_ = small_ ? 3 : 8, wides_ = small_ ? 2 : 6,
                 predicates_ = small_ ? 2 : 5, quads_ = small_ ? 1 : 2;
  Program program_;
  uint64_t next_ = 0;                 // numbers for labels and registers
  std::vector<size_t> declarations_;  // lines that are written when it is known how many registers there are
  int functions_ = 0;
  std::vector<bool> function_needs_mask_;
  bool threads_may_end_ = false;
};

}  // namespace softgpu::differential
