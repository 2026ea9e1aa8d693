#include "libraries/cudnn/attention_graph.h"

#include <algorithm>
#include <utility>

#include "libraries/cudnn/tensors.h"

namespace gpupool::cudnn {
namespace {

using operations::Attention;

std::size_t dims_of_tensor(const Content& tensor) {
  return tensor.list<std::int64_t>(tensor_sizes).size();
}

}  // namespace

int AttentionGraph::other(const Content& operation, const char* why) {
  return refuse_graph(not_supported_graph_pattern, operation, why);
}

int AttentionGraph::matmul(const Content& operation) {
  const Content *a = operation.child(matmul_a), *b = operation.child(matmul_b),
                *c = operation.child(matmul_c);
  if (a == nullptr || b == nullptr || c == nullptr) return other(operation, "an operand is missing");
  if (a->one<int>(tensor_data_type, -1) != b->one<int>(tensor_data_type, -1))
    return refuse_graph(not_supported_data_type, operation, "its two matrices have different types");
  const AttentionValue &left = value(*a), &right = value(*b);
  const bool fully_dropped = left.masked == drops() && left.scaled == drops();
  const auto of_heads = [&](Role role, Role gradient, Meaning meaning) -> int {
    // Several heads of Q have one of K and V: then their gradients are added up behind.
    const auto sizes = c->list<std::int64_t>(tensor_sizes);
    if (sizes.size() == 4 && sizes[1] != (program_.operation.*role).sizes[1])
      return make(operation, *c, meaning);
    return put(operation, *c, gradient, Meaning::gradient);
  };
  if (left.meaning == Meaning::given && right.meaning == Meaning::given) {
    if (do_ && tensor_id(*a) == *do_) {
      if (const int bad = place(operation, b, &Attention::v, true); bad != success) return bad;
      return make(operation, *c, Meaning::weights_gradient);
    }
    if (program_.id_of(&Attention::q)) return other(operation, "a second product of two tensors");
    if (const int bad = place(operation, a, &Attention::q); bad != success) return bad;
    if (const int bad = place(operation, b, &Attention::k, true); bad != success) return bad;
    return make(operation, *c, Meaning::scores);
  }
  if (left.meaning == Meaning::weights && right.meaning == Meaning::given && fully_dropped) {
    if (left.turned) {
      if (!do_ || tensor_id(*b) != *do_) return other(operation);
      return of_heads(&Attention::k, &Attention::v_gradient, Meaning::values_of_heads);
    }
    if (do_) return other(operation);
    if (const int bad = place(operation, b, &Attention::v); bad != success) return bad;
    return put(operation, *c, &Attention::o, Meaning::result);
  }
  if (left.meaning == Meaning::scores_gradient && left.scaled) {
    if (left.turned && right.meaning == Meaning::given && program_.id_of(&Attention::q) == tensor_id(*b))
      return of_heads(&Attention::k, &Attention::k_gradient, Meaning::keys_of_heads);
    if (!left.turned && right.meaning == Meaning::keys) {
      // Its numbers may be added up in a tensor of more precision, which is copied to the gradient then.
      values_[tensor_id(*c)].meaning = Meaning::queries_gradient;
      return c->one<std::uint8_t>(tensor_virtual, 0) != 0 ? success
                                                          : place(operation, c, &Attention::q_gradient);
    }
  }
  return other(operation);
}

int AttentionGraph::reduction(const Content& operation) {
  const Content *x = operation.child(reduction_x), *y = operation.child(reduction_y),
                *how = operation.child(reduction_descriptor);
  if (x == nullptr || y == nullptr || how == nullptr) return other(operation, "an operand is missing");
  constexpr int addition = 0, maximum = 3;
  const int mode = how->one<int>(reduction_operator, -1);
  const AttentionValue& from = value(*x);
  if (mode == maximum && from.meaning == Meaning::scores) return make(operation, *y, Meaning::most);
  if (mode != addition) return other(operation);
  switch (from.meaning) {
    case Meaning::exponentials:
      return make(operation, *y, Meaning::sum);
    case Meaning::products:
      return make(operation, *y, Meaning::row_sums);
    case Meaning::values_of_heads:
      return put(operation, *y, &Attention::v_gradient, Meaning::gradient);
    case Meaning::keys_of_heads:
      return put(operation, *y, &Attention::k_gradient, Meaning::gradient);
    case Meaning::scores_gradient:
      if (from.turned || from.masked) return other(operation);
      return put(operation, *y, &Attention::bias_gradient, Meaning::gradient);
    default:
      return other(operation);
  }
}

int AttentionGraph::softmax(const Content& operation) {
  const Content *x = operation.child(softmax_x), *y = operation.child(softmax_y);
  if (!is(x, Meaning::scores) || y == nullptr) return other(operation);
  for (const auto& [name, attribute] : operation.attributes) {
    if (name > softmax_statistics) return other(operation, "largest scores, sums or a sink are not carried");
  }
  if (const Content* const statistics = operation.child(softmax_statistics)) {
    if (const int bad = put(operation, *statistics, &Attention::statistics, Meaning::statistics);
        bad != success)
      return bad;
  }
  return make(operation, *y, Meaning::weights);
}

/// Rows and columns change their places: by the strides of what comes out.
int AttentionGraph::turn(const Content& operation) {
  const Content *x = operation.child(reshape_x), *y = operation.child(reshape_y);
  if (x == nullptr || y == nullptr) return other(operation, "an operand is missing");
  auto sizes = x->list<std::int64_t>(tensor_sizes);
  if (sizes.size() != 4) return other(operation);
  std::swap(sizes[2], sizes[3]);
  if (y->list<std::int64_t>(tensor_sizes) != sizes) return other(operation);
  AttentionValue from = value(*x);
  if (from.meaning == Meaning::given && program_.id_of(&Attention::k) == tensor_id(*x))
    return make(operation, *y, Meaning::keys);
  if ((from.meaning != Meaning::weights && from.meaning != Meaning::scores_gradient) || from.turned)
    return other(operation);
  from.turned = true;
  return make(operation, *y, std::move(from));
}

int AttentionGraph::random(const Content& operation) {
  const Content *y = operation.child(random_y), *how = operation.child(random_descriptor),
                *seed = operation.child(random_seed), *offset = operation.child(random_offset);
  if (y == nullptr || how == nullptr || drops()) return other(operation, "random numbers of a second kind");
  constexpr int bernoulli = 0;
  if (how->one<int>(random_distribution, bernoulli) != bernoulli)
    return other(operation, "random numbers of another distribution than Bernoulli's");
  if (offset == nullptr || seed == nullptr)
    return other(operation, "random numbers whose seed is not given by a tensor");
  program_.operation.rate = 1 - how->real(random_probability, 1);
  if (!(program_.operation.rate >= 0 && program_.operation.rate < 1))
    return refuse_graph(bad_param, operation, "a probability that is none");
  program_.seed = given_of(*seed);
  program_.offset = given_of(*offset);
  return make(operation, *y, Meaning::random);
}

int AttentionGraph::operation(const Content& operation) {
  for (const Content* const tensor : outputs_of(operation)) {
    if (values_.count(tensor_id(*tensor)) != 0) return other(operation, "a tensor is made twice");
  }
  const Content* const how = operation.child(operation_pointwise);
  const bool counts = how != nullptr && how->find(pointwise_axis) != nullptr;  // of rows and columns alone
  for (const Content* const tensor : inputs_of(operation)) {
    if (!counts && is(tensor, Meaning::scores) && tensor_id(*tensor) != scores_)
      return other(operation, "it takes scores that more has been done to since then");
  }
  switch (operation.kind) {
    case kind_operation_matmul:
      return matmul(operation);
    case kind_operation_pointwise:
      return pointwise(operation);
    case kind_operation_reduction:
      return reduction(operation);
    case kind_operation_reshape:
    case kind_operation_transpose:
      return turn(operation);
    case kind_operation_random:
      return random(operation);
    case kind_operation_band_mask:
      return band(operation);
    case kind_operation_softmax:
      return softmax(operation);
    default:
      return other(operation, "attention has no such operation");
  }
}

int AttentionGraph::read_all(const Operations& operations) {
  std::vector<const Content*> waiting;
  for (const auto& operation : operations) {
    waiting.push_back(operation.get());
    for (const Content* const tensor : outputs_of(*operation)) made_.insert(tensor_id(*tensor));
  }
  // Whether anything is left out at random is known before weights are used.
  std::stable_partition(waiting.begin(), waiting.end(),
                        [](const Content* operation) { return operation->kind == kind_operation_random; });
  while (!waiting.empty()) {
    const auto ready = std::find_if(waiting.begin(), waiting.end(), [&](const Content* operation) {
      const auto inputs = inputs_of(*operation);
      return std::none_of(inputs.begin(), inputs.end(), [&](const Content* tensor) {
        const std::int64_t id = tensor_id(*tensor);
        return made_.count(id) != 0 && values_.count(id) == 0;
      });
    });
    if (ready == waiting.end()) return other(*waiting.front(), "operations wait for each other");
    if (const int bad = operation(**ready); bad != success) return bad;
    waiting.erase(ready);
  }
  return success;
}

int AttentionGraph::read(const Operations& operations) {
  if (operations.empty()) return bad_param;
  const Content& first = *operations.front();
  if (first.kind == kind_operation_attention || first.kind == kind_operation_attention_backward) {
    if (operations.size() != 1) return other(*operations[1], "it follows attention");
    if (const int bad = whole(first, first.kind == kind_operation_attention_backward); bad != success)
      return bad;
    return finish(first);
  }
  // A graph of gradients has the product of O and its gradient; which of them is which, a matrix product
  // says.
  std::set<std::int64_t> factors;
  for (const auto& operation : operations) {
    const auto outputs = outputs_of(*operation);
    for (const Content* const tensor : outputs) made_.insert(tensor_id(*tensor));
  }
  for (const auto& operation : operations) {
    const Content *x = operation->child(operation_pointwise_x), *b = operation->child(operation_pointwise_b);
    if (operation->kind != kind_operation_pointwise || x == nullptr || b == nullptr) continue;
    const std::int64_t one = tensor_id(*x), two = tensor_id(*b);
    if (made_.count(one) == 0 && made_.count(two) == 0 && dims_of_tensor(*x) == 4 &&
        x->list<std::int64_t>(tensor_sizes) == b->list<std::int64_t>(tensor_sizes))
      factors = {one, two};
  }
  for (const auto& operation : operations) {
    const Content *a = operation->child(matmul_a), *b = operation->child(matmul_b);
    if (operation->kind != kind_operation_matmul || a == nullptr || b == nullptr) continue;
    const std::int64_t id = tensor_id(*a);
    if (factors.count(id) == 0 || made_.count(tensor_id(*b)) != 0) continue;
    do_ = id;
    for (const std::int64_t factor : factors) {
      if (factor != id || factors.size() == 1) o_ = factor;
    }
  }
  program_.operation.backward = do_.has_value();
  if (const int bad = read_all(operations); bad != success) return bad;
  return finish(*operations.back());
}

int AttentionGraph::finish(const Content& last) {
  const Attention& made = program_.operation;
  const auto has = [&](Role role) { return program_.id_of(role).has_value(); };
  bool complete = has(&Attention::q) && has(&Attention::k) && has(&Attention::v) && has(&Attention::o);
  if (made.backward != 0)
    complete = complete && has(&Attention::statistics) && has(&Attention::o_gradient) &&
               has(&Attention::q_gradient) && has(&Attention::k_gradient) && has(&Attention::v_gradient);
  if (!complete) return other(last, "attention is not complete");
  for (const auto* const lengths : {&program_.q_lengths, &program_.k_lengths}) {
    if (!*lengths) continue;
    constexpr int narrow = 4, wide = 10;  // cudnnDataType_t
    if ((*lengths)->by_value || (*lengths)->elements != made.q.sizes[0] ||
        ((*lengths)->type != narrow && (*lengths)->type != wide))
      return refuse_graph(bad_param_shape_mismatch, last,
                          "lengths of sequences are no numbers, one for each image");
  }
  const Tensor& bias = made.bias_gradient;
  if (bias.address != 0 && (bias.sizes[2] != made.rows() || bias.sizes[3] != made.columns()))
    return refuse_graph(not_supported_shape, last,
                        "the gradient of a bias that is repeated for rows or columns");
  if (!made.sound()) return refuse_graph(bad_param_shape_mismatch, last, "the tensors' sizes do not fit");
  return success;
}

bool is_attention(const std::vector<std::shared_ptr<const Content>>& operations) {
  return std::any_of(operations.begin(), operations.end(), [](const auto& operation) {
    return operation->kind == kind_operation_matmul || operation->kind == kind_operation_attention ||
           operation->kind == kind_operation_attention_backward;
  });
}

int attention_of(const std::vector<std::shared_ptr<const Content>>& operations, AttentionProgram& program) {
  return AttentionGraph(program).read(operations);
}

}  // namespace gpupool::cudnn
