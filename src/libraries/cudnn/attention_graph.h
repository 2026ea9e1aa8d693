// Finds out whether a graph is attention, operation by operation.
#pragma once

#include <map>
#include <set>

#include "libraries/cudnn/attention_values.h"

namespace gpupool::cudnn {

/// Reads the operations of a graph in any order in which each has what it needs. Every step returns a status:
/// not_supported_graph_pattern once the graph turns out to be something else.
class AttentionGraph {
 public:
  using Operations = std::vector<std::shared_ptr<const Content>>;
  using Role = AttentionProgram::Role;
  explicit AttentionGraph(AttentionProgram& program) : program_(program) {}

  int read(const Operations& operations);

 private:
  // Operations (attention_graph.cpp).
  int read_all(const Operations& operations);
  int operation(const Content& operation);
  int matmul(const Content& operation);
  int pointwise(const Content& operation);
  int reduction(const Content& operation);
  int softmax(const Content& operation);
  int turn(const Content& operation);
  int random(const Content& operation);
  int finish(const Content& last);

  // Attention as one operation (attention_whole.cpp).
  int whole(const Content& operation, bool backward);
  int subgraph(const Content& operation);

  // Operations element by element (attention_pointwise.cpp).
  int multiply(const Content& operation, const Content& x, const Content& b, const Content& y);
  int multiply_number(const Content& operation, const AttentionValue& x, const Given& factor,
                      const Content& y);
  int add(const Content& operation, const Content& x, const Content& b, int sign, const Content& y);
  int compare(const Content& operation, const Content& x, const Content& b, int mode, const Content& y);
  int select(const Content& operation, const Content& x, const Content& b, const Content& y);
  int band(const Content& operation);
  int apply(const Content& operation, const IndexCondition& condition);

  // What tensors are (attention_tensors.cpp).
  [[nodiscard]] const AttentionValue& value(const Content& tensor) const;
  [[nodiscard]] bool is(const Content* tensor, Meaning meaning) const {
    return tensor != nullptr && value(*tensor).meaning == meaning;
  }
  /// A tensor between operations, which nobody may want to have.
  int make(const Content& operation, const Content& tensor, AttentionValue value);
  int make(const Content& operation, const Content& tensor, Meaning meaning) {
    AttentionValue made;
    made.meaning = meaning;
    return make(operation, tensor, std::move(made));
  }
  /// A tensor of the program's: `turned`, its last two dimensions change their places.
  int place(const Content& operation, const Content* tensor, Role role, bool turned = false);
  /// A tensor that the program wants to have, and what it is.
  int put(const Content& operation, const Content& tensor, Role role, Meaning meaning);
  int keep(const Content& operation, const Content& tensor, std::optional<Given>& into);
  [[nodiscard]] bool drops() const { return program_.seed.has_value(); }
  static int other(const Content& operation, const char* why = "it has another place than in attention");

  AttentionProgram& program_;
  std::map<std::int64_t, AttentionValue> values_;
  std::set<std::int64_t> made_;         // by the graph's operations
  std::int64_t scores_ = 0;             // those that all has been done to so far
  std::optional<std::int64_t> o_, do_;  // of a graph of gradients, before their places are known
};

/// The number of a tensor.
inline std::int64_t tensor_id(const Content& tensor) {
  return tensor.one<std::int64_t>(tensor_unique_id, 0);
}
Given given_of(const Content& tensor);
/// The tensors that an operation reads, and those that it makes.
std::vector<const Content*> inputs_of(const Content& operation);
std::vector<const Content*> outputs_of(const Content& operation);

}  // namespace gpupool::cudnn
