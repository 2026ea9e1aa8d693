// Tensors of a graph of attention: who reads and makes them, and what they are.
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "libraries/cudnn/attention_graph.h"
#include "libraries/cudnn/tensors.h"

namespace gpupool::cudnn {
namespace {

std::vector<const Content*> children(const Content& operation, std::initializer_list<int> names) {
  std::vector<const Content*> found;
  for (const int name : names) {
    const Content* const child = operation.child(name);
    if (child != nullptr && child->kind == kind_tensor) found.push_back(child);
  }
  return found;
}

}  // namespace

std::vector<const Content*> inputs_of(const Content& operation) {
  switch (operation.kind) {
    case kind_operation_matmul:
      return children(operation, {matmul_a, matmul_b});
    case kind_operation_pointwise:
      return children(operation, {operation_pointwise_x, operation_pointwise_b, operation_pointwise_t});
    case kind_operation_reduction:
      return children(operation, {reduction_x});
    case kind_operation_reshape:
    case kind_operation_transpose:
      return children(operation, {reshape_x});
    case kind_operation_band_mask:
      return children(operation, {band_x});
    case kind_operation_softmax:
      return children(operation, {softmax_x});
    default:
      return {};
  }
}
std::vector<const Content*> outputs_of(const Content& operation) {
  switch (operation.kind) {
    case kind_operation_matmul:
      return children(operation, {matmul_c});
    case kind_operation_pointwise:
      return children(operation, {operation_pointwise_y});
    case kind_operation_reduction:
      return children(operation, {reduction_y});
    case kind_operation_reshape:
    case kind_operation_transpose:
      return children(operation, {reshape_y});
    case kind_operation_random:
      return children(operation, {random_y});
    case kind_operation_band_mask:
      return children(operation, {band_y});
    case kind_operation_softmax:
      return children(operation, {softmax_y});
    default:
      return {};
  }
}

Given given_of(const Content& tensor) {
  Given made;
  made.id = tensor_id(tensor);
  made.type = tensor.one<int>(tensor_data_type, 0);
  made.by_value = tensor.one<std::uint8_t>(tensor_by_value, 0) != 0;
  const auto sizes = tensor.list<std::int64_t>(tensor_sizes),
             strides = tensor.list<std::int64_t>(tensor_strides);
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(made.elements, size, &made.elements)) made.elements = operations::max_size;
  }
  if (!strides.empty() && sizes[0] > 1) made.stride = strides[0];
  return made;
}

const AttentionValue& AttentionGraph::value(const Content& tensor) const {
  static const AttentionValue unknown;
  const auto found = values_.find(tensor_id(tensor));
  return found == values_.end() ? unknown : found->second;
}

int AttentionGraph::make(const Content& operation, const Content& tensor, AttentionValue value) {
  if (tensor.one<std::uint8_t>(tensor_virtual, 0) == 0)
    return other(operation, "what it makes is to be stored, and attention does not keep that");
  if (value.meaning == Meaning::scores) scores_ = tensor_id(tensor);
  values_[tensor_id(tensor)] = std::move(value);
  return success;
}

int AttentionGraph::place(const Content& operation, const Content* tensor, Role role, bool turned) {
  if (tensor == nullptr || tensor->kind != kind_tensor)
    return refuse_graph(bad_param, operation, "a tensor is missing");
  const auto refused = [&](int status, const char* why) { return refuse_graph(status, operation, why); };
  const std::int64_t id = tensor_id(*tensor);
  if (const auto known = program_.id_of(role); known && *known != id)
    return other(operation, "it has another operand than the operations before it");
  const auto type = element_of(tensor->one<int>(tensor_data_type, -1));
  if (!type || (*type != Element::f16 && *type != Element::bf16 && *type != Element::f32))
    return refused(not_supported_data_type, "attention is computed in f16, bf16 and f32");
  auto sizes = tensor->list<std::int64_t>(tensor_sizes), strides = tensor->list<std::int64_t>(tensor_strides);
  if (sizes.size() != 4) return refused(not_supported_shape, "another number of dimensions than four");
  if (tensor->find(tensor_ragged_offset) != nullptr)
    return refused(not_supported_layout,
                   "sequences without gaps between them (ragged offsets) are not carried");
  if (tensor->one<std::int64_t>(tensor_vector_count, 1) != 1 || tensor->one<int>(tensor_reordering, 0) != 0 ||
      tensor->one<std::uint8_t>(tensor_by_value, 0) != 0 ||
      tensor->one<std::uint8_t>(tensor_virtual, 0) != 0 ||
      std::any_of(strides.begin(), strides.end(), [](std::int64_t stride) { return stride < 0; }))
    return refused(not_supported_layout, "a tensor that does not lie in device memory by its strides");
  if (turned) {
    std::swap(sizes[2], sizes[3]);
    std::swap(strides[2], strides[3]);
  }
  Tensor made;
  made.type = *type;
  made.dims = 4;
  std::copy(sizes.begin(), sizes.end(), made.sizes);
  std::copy(strides.begin(), strides.end(), made.strides);
  made.address = 1;  // it is there: each execution says where
  program_.operation.*role = made;
  if (!program_.id_of(role)) program_.places.push_back({id, role});
  return success;
}

int AttentionGraph::put(const Content& operation, const Content& tensor, Role role, Meaning meaning) {
  if (program_.id_of(role)) return other(operation);
  if (const int bad = place(operation, &tensor, role); bad != success) return bad;
  values_[tensor_id(tensor)].meaning = meaning;
  return success;
}

int AttentionGraph::keep(const Content& operation, const Content& tensor, std::optional<Given>& into) {
  const Given given = given_of(tensor);
  if (into && !(*into == given))
    return other(operation, "it has another number than the operations before it");
  into = given;
  return success;
}

}  // namespace gpupool::cudnn
