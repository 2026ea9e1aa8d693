// What the tensors between a graph's operations stand for, where the graph is attention.
#pragma once

#include <vector>

#include "libraries/cudnn/attention.h"

namespace gpupool::cudnn {

/// What a tensor stands for.
enum class Meaning {
  given,  // by the program: no operation of the graph makes it
  scores,
  most,               // of each row of scores
  shifted,            // scores less the largest one, or less the statistics
  exponentials,       // of shifted ones, whose rows have no sum of 1 yet
  sum,                // of each row's exponentials
  logarithm,          // of the sum
  statistics,         // largest score + logarithm
  weights,            // what the values are added up by
  random,             // 1 where a weight is kept, else 0
  result,             // O
  index,              // a number of the row and the column
  conditions,         // about rows and columns
  products,           // of O and its gradient
  row_sums,           // of these products
  balance,            // the same, as what weights' gradients lie above
  weights_gradient,   // dO · Vᵀ
  balanced_gradient,  // less `balance`
  scores_gradient,
  keys,             // K, turned
  values_of_heads,  // V's gradient of each head of Q
  keys_of_heads,    // K's
  queries_gradient,
  gradient,  // of K, V or the bias
};

/// rows · row + columns · column + numbers.
struct IndexTerm {
  int rows = 0, columns = 0;
  std::vector<AddedNumber> numbers;

  [[nodiscard]] IndexTerm less(const IndexTerm& other) const {
    IndexTerm made = *this;
    made.rows -= other.rows;
    made.columns -= other.columns;
    for (const AddedNumber& added : other.numbers) made.numbers.push_back({added.number, -added.sign});
    return made;
  }
};

/// The term is more than 0, or (unless `strict`) 0.
struct IndexCondition {
  IndexTerm term;
  bool strict = false;
};

struct AttentionValue {
  Meaning meaning = Meaning::given;
  // Weights and their gradients:
  bool masked = false;  // what is left out at random is 0
  bool scaled = false;  // what is kept is larger for it; of the gradient of scores: it is that of products
  bool turned = false;  // rows and columns are exchanged
  IndexTerm index;
  std::vector<IndexCondition> conditions;
};

}  // namespace gpupool::cudnn
