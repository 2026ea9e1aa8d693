// What a descriptor of a graph must have before it is finalised.
#include <initializer_list>

#include "libraries/cudnn/backend.h"
#include "libraries/cudnn/descriptors.h"
#include "libraries/cudnn/handle.h"

namespace gpupool::cudnn {
namespace {

bool has(const Content& content, std::initializer_list<int> names) {
  for (const int name : names) {
    if (content.find(name) == nullptr) return false;
  }
  return true;
}
bool is_kind(const Content* content, int kind) {
  return content != nullptr && content->kind == kind;
}

int finalize_tensor(const Content& tensor) {
  if (!has(tensor, {tensor_data_type, tensor_sizes, tensor_strides, tensor_unique_id, tensor_alignment}))
    return bad_param;
  const auto sizes = tensor.list<std::int64_t>(tensor_sizes),
             strides = tensor.list<std::int64_t>(tensor_strides);
  if (sizes.size() != strides.size()) return bad_param;
  for (const std::int64_t size : sizes) {
    if (size <= 0) return bad_param;
  }
  const std::int64_t alignment = tensor.one<std::int64_t>(tensor_alignment, 0);
  if (alignment <= 0 || (alignment & (alignment - 1)) != 0) return bad_param;
  if (!is_data_type(tensor.one<int>(tensor_data_type, -1))) return bad_param;
  return success;
}

int finalize_convolution(const Content& convolution) {
  if (!has(convolution, {convolution_compute_type, convolution_mode, convolution_space, convolution_dilations,
                         convolution_strides, convolution_pre_paddings, convolution_post_paddings}))
    return bad_param;
  const auto space = static_cast<std::size_t>(convolution.one<std::int64_t>(convolution_space, 0));
  for (const int name :
       {convolution_dilations, convolution_strides, convolution_pre_paddings, convolution_post_paddings}) {
    const auto values = convolution.list<std::int64_t>(name);
    if (values.size() != space) return bad_param;
    const bool padding = name == convolution_pre_paddings || name == convolution_post_paddings;
    for (const std::int64_t value : values) {
      if (value < (padding ? 0 : 1)) return bad_param;
    }
  }
  return success;
}

/// Three tensors and a convolution. Whether the shapes fit is the graph's matter, which names the operation.
int finalize_operation(const Content& operation, int first) {
  if (!is_kind(operation.child(first + 2), kind_convolution)) return bad_param;
  for (int name = first + 3; name < first + 6; ++name) {
    if (!is_kind(operation.child(name), kind_tensor)) return bad_param;
  }
  return success;
}

int finalize_pointwise(const Content& operation) {
  return is_kind(operation.child(operation_pointwise), kind_pointwise) ? success : bad_param;
}

int finalize_graph(Content& graph) {
  const Attribute* const operations = graph.find(graph_operations);
  if (operations == nullptr) return bad_param;
  // A graph inside an operation of another one has no handle: that operation reads it.
  if (graph.find(graph_handle) == nullptr) return success;
  if (find_handle(graph.one<void*>(graph_handle, nullptr)) == nullptr) return bad_param;
  auto program = std::make_shared<Program>();
  if (const int bad = program_of(operations->descriptors, *program); bad != success) return bad;
  graph.program = std::move(program);
  return success;
}

/// A graph that can be executed.
bool is_program(const Content* graph) {
  return is_kind(graph, kind_graph) && graph->program != nullptr;
}

int finalize_engine(const Content& engine) {
  if (!is_program(engine.child(engine_graph)) || !has(engine, {engine_index})) return bad_param;
  const auto index = engine.one<std::int64_t>(engine_index, -1);
  return index >= 0 && index < engine.child(engine_graph)->program->engines() ? success
                                                                              : bad_param_out_of_bound;
}

int finalize_pack(const Content& pack) {
  const Attribute* const ids = pack.find(pack_unique_ids);
  const Attribute* const pointers = pack.find(pack_pointers);
  return ids != nullptr && pointers != nullptr && ids->count == pointers->count ? success : bad_param;
}

}  // namespace

int finalize(Content& content) {
  switch (content.kind) {
    case kind_tensor:
      return finalize_tensor(content);
    case kind_convolution:
      return finalize_convolution(content);
    case kind_pointwise:
      return has(content, {pointwise_mode}) ? success : bad_param;
    case kind_operation_forward:
      return finalize_operation(content, forward_alpha);
    case kind_operation_backward_data:
      return finalize_operation(content, backward_data_alpha);
    case kind_operation_backward_filter:
      return finalize_operation(content, backward_filter_alpha);
    case kind_operation_pointwise:
      return finalize_pointwise(content);
    case kind_graph:
      return finalize_graph(content);
    case kind_engine:
      return finalize_engine(content);
    case kind_engine_config:
      return is_kind(content.child(config_engine), kind_engine) ? success : bad_param;
    case kind_engine_heuristic:
      return is_program(content.child(heuristic_graph)) && has(content, {heuristic_mode}) ? success
                                                                                          : bad_param;
    case kind_plan:
      return is_kind(content.child(plan_config), kind_engine_config) ? success : bad_param;
    case kind_variant_pack:
      return finalize_pack(content);
    default:
      return success;
  }
}

}  // namespace gpupool::cudnn
