// Graphs of attention: the operation of one, and where its numbers and tensors come from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "libraries/cudnn/backend.h"
#include "libraries/operations/attention.h"

namespace gpupool::cudnn {

/// A tensor that a graph is given: its number, and what an execution has to know of it.
struct Given {
  std::int64_t id = 0;
  int type = 0;           // cudnnDataType_t
  bool by_value = false;  // in host memory, when it is executed
  std::int64_t elements = 1, stride = 0;

  bool operator==(const Given& other) const { return id == other.id; }
};

/// A number that is added or subtracted.
struct AddedNumber {
  Given number;
  std::int64_t sign = 1;
};

struct AttentionProgram {
  using Role = operations::Tensor operations::Attention::*;
  struct Place {
    std::int64_t id;
    Role role;
  };

  operations::Attention operation;
  std::vector<Place> places;
  std::optional<Given> scale, q_lengths, k_lengths, seed, offset;
  std::vector<AddedNumber> left, right;  // on top of the operation's bounds
  // What the operation does without being told, so that it has to be so: numbers that stand for minus
  // infinity, factors of what is not left out, and their inverses.
  std::vector<Given> fills, kept, kept_inverses;

  [[nodiscard]] std::optional<std::int64_t> id_of(Role role) const {
    for (const Place& place : places) {
      if (place.role == role) return place.id;
    }
    return std::nullopt;
  }
};

/// Whether only attention can have these operations: matrix products, or all of it as one.
bool is_attention(const std::vector<std::shared_ptr<const Content>>& operations);

/// The program of a graph's operations, or why there is none, as program_of() says it.
int attention_of(const std::vector<std::shared_ptr<const Content>>& operations, AttentionProgram& program);

/// The operation with the addresses and numbers of a variant pack.
int complete(const AttentionProgram& program, const Content& pack, operations::Attention& operation);

}  // namespace gpupool::cudnn
