// Graphs as operations: one convolution with element-wise operations on its result, or attention.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "libraries/cudnn/attention.h"
#include "libraries/cudnn/backend.h"
#include "libraries/cudnn/convolution.h"
#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/tensors.h"
#include "libraries/shared/refusal.h"

namespace gpupool::cudnn {
namespace {

using operations::Activation;

const char* name_of_kind(int kind) {
  static constexpr const char* names[] = {"CONVOLUTION_FORWARD", "CONVOLUTION_BACKWARD_FILTER",
                                          "CONVOLUTION_BACKWARD_DATA", "POINTWISE", "GEN_STATS"};
  static constexpr const char* later_names[] = {"MATMUL",
                                                "BN_FINALIZE_STATISTICS",
                                                "",
                                                "REDUCTION",
                                                "BN_BWD_WEIGHTS",
                                                "",
                                                "RESAMPLE_FWD",
                                                "RESAMPLE_BWD",
                                                "CONCAT",
                                                "SIGNAL",
                                                "NORM_FORWARD",
                                                "NORM_BACKWARD",
                                                "RESHAPE",
                                                "",
                                                "RNG"};
  if (kind >= kind_operation_forward && kind < kind_operation_forward + 5)
    return names[kind - kind_operation_forward];
  constexpr int later = 19;
  if (kind >= later && kind < later + 15) return later_names[kind - later];
  if (kind == kind_operation_attention) return "SDPA_FWD";
  if (kind == kind_operation_attention_backward) return "SDPA_BWD";
  if (kind == kind_operation_band_mask) return "DIAGONAL_BAND_MASK";
  if (kind == kind_operation_softmax) return "SOFTMAX";
  if (kind == kind_operation_transpose) return "TRANSPOSE";
  return "of another kind";
}

/// A tensor's descriptor as an operand: success, or what is wrong with it.
int tensor_in_graph(const Content& operation, const Content& tensor, Tensor& made, bool may_be_int = false) {
  const auto sizes = tensor.list<std::int64_t>(tensor_sizes),
             strides = tensor.list<std::int64_t>(tensor_strides);
  const auto type = element_of(tensor.one<int>(tensor_data_type, -1));
  if (!type || (!is_real(*type) && !may_be_int))
    return refuse_graph(not_supported_data_type, operation, "a type that it is not computed in");
  constexpr std::size_t least = 3, most = 5;
  if (sizes.size() < least || sizes.size() > most)
    return refuse_graph(not_supported_shape, operation, "another number of dimensions than three to five");
  if (tensor.one<std::int64_t>(tensor_vector_count, 1) != 1 || tensor.one<int>(tensor_reordering, 0) != 0 ||
      std::any_of(strides.begin(), strides.end(), [](std::int64_t stride) { return stride < 0; }))
    return refuse_graph(not_supported_layout, operation, "vectors, a reordering, or steps backwards");
  if (tensor.one<std::uint8_t>(tensor_by_value, 0) != 0)
    return refuse_graph(not_supported_graph_pattern, operation, "a tensor that is given by its value");
  made = {};
  made.type = *type;
  made.dims = static_cast<std::uint8_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), made.sizes);
  std::copy(strides.begin(), strides.end(), made.strides);
  made = of_five(made);
  return success;
}

std::int64_t id_of(const Content& tensor) {
  return tensor.one<std::int64_t>(tensor_unique_id, 0);
}

/// Which attributes of an operation are its tensors.
struct Roles {
  ConvolutionDirection direction;
  int first, input, filter, output;
};
constexpr Roles roles_of[] = {
    {ConvolutionDirection::forward, forward_alpha, forward_x, forward_w, forward_y},
    {ConvolutionDirection::backward_filter, backward_filter_alpha, backward_filter_x, backward_filter_dw,
     backward_filter_dy},
    {ConvolutionDirection::backward_data, backward_data_alpha, backward_data_dx, backward_data_w,
     backward_data_dy},
};

int check_shapes(const Content& operation, const Convolution& made, const Content& convolution,
                 std::size_t space) {
  const auto wrong = [&](const char* why) { return refuse_graph(bad_param_shape_mismatch, operation, why); };
  if (made.filter.sizes[1] == 0 || made.input.sizes[1] % made.filter.sizes[1] != 0 ||
      made.filter.sizes[0] % (made.input.sizes[1] / made.filter.sizes[1]) != 0)
    return wrong("channels of the input and the filter do not fit");
  if (made.output.sizes[0] != made.input.sizes[0] || made.output.sizes[1] != made.filter.sizes[0])
    return wrong("images or channels of the output do not fit");
  const auto after = convolution.list<std::int64_t>(convolution_post_paddings);
  const std::size_t missing = Convolution::space - space;
  for (std::size_t i = 0; i < space; ++i) {
    const std::size_t axis = missing + i;
    const std::int64_t reach = (made.filter.sizes[2 + axis] - 1) * made.dilation[axis] + 1;
    const std::int64_t left = made.input.sizes[2 + axis] + made.padding[axis] + after[i] - reach;
    if (left < 0 || left / made.stride[axis] + 1 != made.output.sizes[2 + axis])
      return wrong("the output has another size");
  }
  return success;
}

int add_convolution(const Content& operation, const Roles& roles, Program& program) {
  Convolution& made = program.convolution;
  made.direction = roles.direction;
  const Content &input = *operation.child(roles.input), &filter = *operation.child(roles.filter),
                &output = *operation.child(roles.output), &convolution = *operation.child(roles.first + 2);
  for (const auto& [descriptor, tensor] :
       {std::pair{&input, &made.input}, std::pair{&filter, &made.filter}, std::pair{&output, &made.output}}) {
    if (const int bad = tensor_in_graph(operation, *descriptor, *tensor); bad != success) return bad;
  }
  const auto space = static_cast<std::size_t>(convolution.one<std::int64_t>(convolution_space, 0));
  const auto sizes = input.list<std::int64_t>(tensor_sizes);
  if (space + 2 != sizes.size() || filter.find(tensor_sizes)->count != input.find(tensor_sizes)->count ||
      output.find(tensor_sizes)->count != input.find(tensor_sizes)->count)
    return refuse_graph(bad_param_shape_mismatch, operation,
                        "tensors of other dimensions than the convolution's");
  const auto copy = [&](int name, std::int64_t* into) {
    const auto values = convolution.list<std::int64_t>(name);
    std::copy(values.begin(), values.end(), into + Convolution::space - space);
  };
  copy(convolution_pre_paddings, made.padding);
  copy(convolution_strides, made.stride);
  copy(convolution_dilations, made.dilation);
  made.flipped = convolution.one<int>(convolution_mode, 1) == 0;
  if (const int bad = check_shapes(operation, made, convolution, space); bad != success) return bad;
  made.groups = made.input.sizes[1] / made.filter.sizes[1];
  const bool wide = made.input.type == Element::f64;
  if ((made.filter.type == Element::f64) != wide || (made.output.type == Element::f64) != wide)
    return refuse_graph(not_supported_data_type, operation, "double precision together with another");
  made.alpha = operation.real(roles.first, 1);
  made.beta = operation.real(roles.first + 1, 0);
  program.input = id_of(input);
  program.filter = id_of(filter);
  program.output = id_of(output);
  if (made.beta != 0) {
    made.added = made.target();
    program.added = id_of(roles.direction == ConvolutionDirection::forward         ? output
                          : roles.direction == ConvolutionDirection::backward_data ? input
                                                                                   : filter);
  }
  return success;
}

/// cudnnPointwiseMode_t of the activations.
std::optional<operations::Activated> activation_of(const Content& pointwise) {
  operations::Activated made;
  switch (pointwise.one<int>(pointwise_mode, -1)) {
    case 21:
      break;
    case 100: {
      made.lower = pointwise.real(pointwise_relu_lower, 0);
      made.upper = pointwise.real(pointwise_relu_upper, HUGE_VAL);
      if (pointwise.real(pointwise_relu_slope, 0) != 0) return std::nullopt;
      const bool plain = made.lower == 0 && made.upper >= 3e38;
      made.activation = plain ? Activation::relu : Activation::clipped_relu;
      break;
    }
    case 101:
      made.activation = Activation::tanh;
      break;
    case 102:
      made.activation = Activation::sigmoid;
      break;
    case 103:
      made.activation = Activation::elu;
      made.coefficient = pointwise.real(pointwise_elu_alpha, 1);
      break;
    case 104:
      made.activation = Activation::gelu;
      break;
    case 105:
      made.activation = Activation::softplus;
      made.coefficient = pointwise.real(pointwise_softplus_beta, 1);
      break;
    case 106:
      made.activation = Activation::swish;
      made.coefficient = pointwise.real(pointwise_swish_beta, 1);
      break;
    case 107:
      made.activation = Activation::gelu_tanh;
      break;
    default:
      return std::nullopt;
  }
  return made;
}

/// One element-wise operation on the convolution's result: something added (once), a bias (once), an
/// activation at the end.
int add_pointwise(const Content& operation, Program& program, bool& ended) {
  const auto refused = [&](const char* why) {
    return refuse_graph(not_supported_graph_pattern, operation, why);
  };
  const Content& pointwise = *operation.child(operation_pointwise);
  const Content *x = operation.child(operation_pointwise_x), *b = operation.child(operation_pointwise_b),
                *y = operation.child(operation_pointwise_y);
  if (x == nullptr || y == nullptr || program.convolution.direction != ConvolutionDirection::forward)
    return refused("it is no addition or activation after a convolution");
  double alpha_x = operation.real(operation_pointwise_alpha1, 1),
         alpha_b = operation.real(operation_pointwise_alpha2, 1);
  if (b != nullptr && id_of(*b) == program.output) {
    std::swap(x, b);
    std::swap(alpha_x, alpha_b);
  }
  if (ended || id_of(*x) != program.output || alpha_x != 1)
    return refused("it does not follow the one before");
  if (x->one<std::uint8_t>(tensor_virtual, 0) == 0) return refused("what it follows is to be stored, too");
  Convolution& made = program.convolution;
  Tensor result;
  if (const int bad = tensor_in_graph(operation, *y, result); bad != success) return bad;
  if (!std::equal(result.sizes, result.sizes + result.dims, made.output.sizes))
    return refuse_graph(bad_param_shape_mismatch, operation, "the result has another size");
  constexpr int addition = 0;
  if (pointwise.one<int>(pointwise_mode, -1) == addition) {
    if (b == nullptr) return refuse_graph(bad_param, operation, "there is nothing to add");
    Tensor operand;
    if (const int bad = tensor_in_graph(operation, *b, operand); bad != success) return bad;
    const bool whole = std::equal(operand.sizes, operand.sizes + operand.dims, result.sizes);
    const bool bias = operand.elements() == operand.sizes[1] && operand.sizes[1] == result.sizes[1];
    if (alpha_b == 0) {
      // Not read: TensorFlow gives it no address.
    } else if (bias && !program.bias && alpha_b == 1) {
      made.bias = operand;
      program.bias = id_of(*b);
    } else if (whole && !program.added) {
      made.added = operand;
      made.beta = alpha_b;
      program.added = id_of(*b);
    } else {
      return refused("more is added than one tensor and one bias");
    }
  } else {
    const auto activation = activation_of(pointwise);
    if (!activation) return refused("it is no addition or activation");
    made.activation = *activation;
    ended = true;
  }
  made.output = result;
  program.output = id_of(*y);
  return success;
}

}  // namespace

int refuse_graph(int status, const Content& operation, const char* why) {
  const std::string subject = std::string("a cuDNN graph with the operation ") + name_of_kind(operation.kind);
  last_error() = subject + ": " + why;
  if (status >= not_supported) libraries::say_once((subject + ": " + why).c_str(), "is not carried");
  return status;
}

int program_of(const std::vector<std::shared_ptr<const Content>>& operations, Program& program) {
  if (is_attention(operations)) {
    auto attention = std::make_shared<AttentionProgram>();
    if (const int bad = attention_of(operations, *attention); bad != success) return bad;
    program.attention = std::move(attention);
    return success;
  }
  bool convolved = false, ended = false;
  const Content* last = nullptr;
  for (const std::shared_ptr<const Content>& operation : operations) {
    const int kind = operation->kind;
    int bad = success;
    if (kind >= kind_operation_forward && kind <= kind_operation_backward_data && !convolved) {
      bad = add_convolution(*operation, roles_of[kind - kind_operation_forward], program);
      convolved = true;
    } else if (kind == kind_operation_pointwise && convolved) {
      bad = add_pointwise(*operation, program, ended);
    } else {
      bad = refuse_graph(not_supported_graph_pattern, *operation,
                         "graphs are one convolution with what follows it, or attention");
    }
    if (bad != success) return bad;
    last = operation.get();
  }
  return last == nullptr ? bad_param : success;
}

}  // namespace gpupool::cudnn
