// What an instruction does to memory, from the name of its step in the opcode table ("@load.u32.w").
#pragma once

#include <cstdint>
#include <string_view>

namespace softgpu {

struct Instruction;

struct AccessKind {
  enum class Step : uint8_t {
    none,  // does not touch memory, or is not known here
    load,
    store,
    atomic,
    copy,            // cp.async: writes shared memory, reads global memory
    matrix_load,     // ldmatrix: lanes give addresses of rows of 16 bytes
    barrier_object,  // mbarrier.init and .inval
    arrive,          // mbarrier.arrive*
    test,            // mbarrier.test_wait
    bulk,            // copies of any length: op[0] to, op[1] from, op[2] bytes
    wide,            // writes shared memory in a pattern that is not followed
  } step = Step::none;
  bool vector = false;          // elements are in Instruction::list
  uint8_t element_bytes = 0;    // in memory
  uint8_t register_bytes = 0;   // of a lane of the value's register
  uint8_t address_operand = 0;  // in Instruction::op
  uint8_t value_operand = 0;    // stores: in Instruction::op, unless the access is a vector's

  [[nodiscard]] bool known() const { return step != Step::none; }
  [[nodiscard]] bool reads() const { return step == Step::load || step == Step::matrix_load; }
  [[nodiscard]] bool writes() const { return step == Step::store || step == Step::barrier_object; }
};

[[nodiscard]] AccessKind access_kind(std::string_view step_name);
// Of an instruction that has its handler from the table. Slow: for the text of errors.
[[nodiscard]] AccessKind access_kind(const Instruction& instruction);
// Bytes that one lane accesses.
[[nodiscard]] uint32_t access_bytes(const AccessKind& kind, const Instruction& instruction);

}  // namespace softgpu
