// The opcodes of the engine's own table that the reference knows too: what the generator writes. A new opcode
// of the table is tried without a change here as soon as the reference has it; until then it is listed.
#pragma once

#include <string>
#include <vector>

#include "softgpu/differential/random.h"
#include "softgpu/reference/operation.h"

namespace softgpu::differential {

struct CatalogueEntry {
  std::string name;
  const reference::Operation* operation;
  bool pair = false;  // d|p
};

class Catalogue {
 public:
  Catalogue();
  [[nodiscard]] const CatalogueEntry& choose(Random& random) const;
  [[nodiscard]] const CatalogueEntry& choose_approximate(Random& random) const;
  // Sequences of carries need some that write the flag, read it, or both.
  [[nodiscard]] const CatalogueEntry& choose_carry(Random& random, bool reads, bool writes) const;
  // An mma.
  [[nodiscard]] const std::string& choose_matrix(Random& random) const;
  // add min max and or xor of "@atom.add.u32"
  [[nodiscard]] const std::vector<std::string>& atomics() const { return atomics_; }

  [[nodiscard]] size_t compared() const { return compared_; }
  // Names of the table that nothing compares.
  [[nodiscard]] const std::vector<std::string>& not_compared() const { return not_compared_; }
  // Where the table and the reference do not mean operands of the same widths.
  [[nodiscard]] const std::vector<std::string>& contradictions() const { return contradictions_; }

 private:
  struct Family {
    std::string base;
    std::vector<CatalogueEntry> entries;
  };
  std::vector<Family> families_;
  std::vector<CatalogueEntry> approximate_;
  std::vector<CatalogueEntry> carries_[2][2];  // reads, writes
  std::vector<std::string> matrices_[2];  // the second: floating-point numbers of 8 bits, most of all forms
  std::vector<std::string> atomics_, not_compared_, contradictions_;
  size_t compared_ = 0;
};

}  // namespace softgpu::differential
