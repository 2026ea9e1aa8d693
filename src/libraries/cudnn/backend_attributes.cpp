// Attributes of graphs' descriptors: which there are, of what type, and how they are set and asked.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "libraries/cudnn/backend.h"
#include "libraries/cudnn/handle.h"

using namespace gpupool::cudnn;

namespace {

/// An attribute of a kind of descriptor.
struct Rule {
  int kind, name, type;
  int most = 1;          // elements
  int other_type = -1;   // that it may have as well
  bool settable = true;  // else it is known of a finalised descriptor
};

constexpr int many = 1024, axes = 8;

constexpr Rule rules[] = {
    {kind_pointwise, pointwise_mode, type_pointwise_mode},
    {kind_pointwise, pointwise_precision, type_data_type},
    {kind_pointwise, pointwise_nan, type_nan},
    {kind_pointwise, pointwise_relu_lower, type_double, 1, type_float},
    {kind_pointwise, pointwise_relu_upper, type_double, 1, type_float},
    {kind_pointwise, pointwise_relu_slope, type_double, 1, type_float},
    {kind_pointwise, pointwise_elu_alpha, type_double, 1, type_float},
    {kind_pointwise, pointwise_softplus_beta, type_double, 1, type_float},
    {kind_pointwise, pointwise_swish_beta, type_double, 1, type_float},
    {kind_pointwise, pointwise_axis, type_int64},
    {kind_convolution, convolution_compute_type, type_data_type},
    {kind_convolution, convolution_mode, type_convolution_mode},
    {kind_convolution, convolution_dilations, type_int64, axes},
    {kind_convolution, convolution_strides, type_int64, axes},
    {kind_convolution, convolution_post_paddings, type_int64, axes},
    {kind_convolution, convolution_pre_paddings, type_int64, axes},
    {kind_convolution, convolution_space, type_int64},
    {kind_engine_heuristic, heuristic_mode, type_heuristic_mode},
    {kind_engine_heuristic, heuristic_graph, type_descriptor},
    {kind_engine_heuristic, heuristic_results, type_descriptor, many, -1, false},
    {kind_engine_heuristic, heuristic_multiprocessors, type_int32},
    {kind_engine, engine_graph, type_descriptor},
    {kind_engine, engine_index, type_int64},
    {kind_engine, engine_knobs, type_descriptor, many, -1, false},
    {kind_engine, engine_numerical_notes, type_numerical_note, many, -1, false},
    {kind_engine, engine_behavior_notes, type_behavior_note, many, -1, false},
    {kind_engine, engine_multiprocessors, type_int32},
    {kind_engine_config, config_engine, type_descriptor},
    {kind_engine_config, config_knob_choices, type_descriptor, many},
    {kind_engine_config, config_workspace, type_int64, 1, -1, false},
    {kind_engine_config, config_shared_memory, type_int64, 1, -1, false},
    {kind_knob_choice, knob_choice_type, type_knob},
    {kind_knob_choice, knob_choice_value, type_int64},
    {kind_plan, plan_handle, type_handle},
    {kind_plan, plan_config, type_descriptor},
    {kind_plan, plan_workspace, type_int64, 1, -1, false},
    {kind_operation_forward, forward_alpha, type_double, 1, type_float},
    {kind_operation_forward, forward_alpha + 1, type_double, 1, type_float},
    {kind_operation_forward, forward_alpha + 2, type_descriptor},
    {kind_operation_forward, forward_w, type_descriptor},
    {kind_operation_forward, forward_x, type_descriptor},
    {kind_operation_forward, forward_y, type_descriptor},
    {kind_operation_backward_data, backward_data_alpha, type_double, 1, type_float},
    {kind_operation_backward_data, backward_data_alpha + 1, type_double, 1, type_float},
    {kind_operation_backward_data, backward_data_alpha + 2, type_descriptor},
    {kind_operation_backward_data, backward_data_w, type_descriptor},
    {kind_operation_backward_data, backward_data_dx, type_descriptor},
    {kind_operation_backward_data, backward_data_dy, type_descriptor},
    {kind_operation_backward_filter, backward_filter_alpha, type_double, 1, type_float},
    {kind_operation_backward_filter, backward_filter_alpha + 1, type_double, 1, type_float},
    {kind_operation_backward_filter, backward_filter_alpha + 2, type_descriptor},
    {kind_operation_backward_filter, backward_filter_dw, type_descriptor},
    {kind_operation_backward_filter, backward_filter_x, type_descriptor},
    {kind_operation_backward_filter, backward_filter_dy, type_descriptor},
    {kind_operation_pointwise, operation_pointwise, type_descriptor},
    {kind_operation_pointwise, operation_pointwise_x, type_descriptor},
    {kind_operation_pointwise, operation_pointwise_b, type_descriptor},
    {kind_operation_pointwise, operation_pointwise_y, type_descriptor},
    {kind_operation_pointwise, operation_pointwise_alpha1, type_double, 1, type_float},
    {kind_operation_pointwise, operation_pointwise_alpha2, type_double, 1, type_float},
    {kind_operation_pointwise, operation_pointwise_dx, type_descriptor},
    {kind_operation_pointwise, operation_pointwise_dy, type_descriptor},
    {kind_operation_pointwise, operation_pointwise_t, type_descriptor},
    {kind_graph, graph_handle, type_handle},
    {kind_graph, graph_operations, type_descriptor, many},
    {kind_graph, graph_engines, type_int64, 1, -1, false},
    {kind_graph, graph_dynamic_shapes, type_boolean},
    {kind_graph, graph_same_topology, type_boolean},
    {kind_graph, graph_other_shapes, type_boolean},
    {kind_graph, graph_mode, type_graph_mode},
    {kind_variant_pack, pack_unique_ids, type_int64, many},
    {kind_variant_pack, pack_pointers, type_pointer, many},
    {kind_variant_pack, pack_workspace, type_pointer},
    {kind_tensor, tensor_alignment, type_int64},
    {kind_tensor, tensor_data_type, type_data_type},
    {kind_tensor, tensor_sizes, type_int64, axes},
    {kind_tensor, tensor_strides, type_int64, axes},
    {kind_tensor, tensor_vector_count, type_int64},
    {kind_tensor, tensor_vector_axis, type_int64},
    {kind_tensor, tensor_unique_id, type_int64},
    {kind_tensor, tensor_virtual, type_boolean},
    {kind_tensor, tensor_by_value, type_boolean},
    {kind_tensor, tensor_reordering, type_reordering},
    {kind_tensor, tensor_ragged_offset, type_descriptor},
};

std::size_t bytes_of_type(int type) {
  switch (type) {
    case type_handle:
    case type_int64:
    case type_double:
    case type_pointer:
    case type_descriptor:
      return 8;
    case type_boolean:
    case type_char:
      return 1;
    case type_fraction:
      return 16;
    default:
      return 4;  // enumerations, and numbers of 32 bits
  }
}

/// Kinds with rules. Operations without any are kept as they are: their graph is refused with their name.
bool has_rules(int kind) {
  return std::any_of(std::begin(rules), std::end(rules), [&](const Rule& rule) { return rule.kind == kind; });
}
const Rule* rule_of(int kind, int name) {
  const auto* const found = std::find_if(std::begin(rules), std::end(rules), [&](const Rule& rule) {
    return rule.kind == kind && rule.name == name;
  });
  return found == std::end(rules) ? nullptr : found;
}
bool fits(const Rule& rule, int type) {
  return type == rule.type || type == rule.other_type;
}

int keep(Content& content, int name, int type, std::int64_t count, const void* elements) {
  Attribute made;
  made.type = type;
  made.count = count;
  if (type == type_descriptor) {
    for (void* const descriptor :
         std::span(static_cast<void* const*>(elements), static_cast<std::size_t>(count))) {
      const Backend* const child = find_backend(descriptor);
      if (child == nullptr) return bad_param_null_pointer;
      if (!child->content->finalized) return bad_param_not_finalized;
      made.descriptors.push_back(child->content);
    }
  } else {
    const auto* const bytes = static_cast<const std::byte*>(elements);
    made.bytes.assign(bytes, bytes + static_cast<std::size_t>(count) * bytes_of_type(type));
  }
  content.attributes[name] = std::move(made);
  return success;
}

/// What is known of a finalised descriptor without having been set.
Attribute known(const std::shared_ptr<Content>& content, int name) {
  Attribute made;
  const auto number = [&](std::int64_t value) {
    made.type = type_int64;
    made.count = 1;
    made.bytes.resize(sizeof value);
    std::memcpy(made.bytes.data(), &value, sizeof value);
  };
  switch (name) {
    case graph_engines:
      // A graph inside an operation of another one has no program, and nothing executes it by itself.
      number(content->program ? content->program->engines() : 1);
      break;
    case engine_numerical_notes:
      if (content->child(engine_graph)
              ->program->takes_fewer_digits(content->one<std::int64_t>(engine_index, 0))) {
        constexpr int note = note_tensor_core;
        made = {type_numerical_note, 1, std::vector<std::byte>(sizeof note), {}};
        std::memcpy(made.bytes.data(), &note, sizeof note);
      }
      break;
    case plan_workspace:
    case config_workspace:
    case config_shared_memory:
      number(0);
      break;
    case heuristic_results: {
      // The only configuration of each engine, the fastest one first.
      const std::int64_t engines = content->child(heuristic_graph)->program->engines();
      Attribute configurations{type_descriptor, engines, {}, {}};
      for (std::int64_t index = 0; index < engines; ++index) {
        auto engine = std::make_shared<Content>();
        engine->kind = kind_engine;
        engine->attributes[engine_graph] = content->attributes[heuristic_graph];
        number(index);
        engine->attributes[engine_index] = made;
        engine->finalized = true;
        auto config = std::make_shared<Content>();
        config->kind = kind_engine_config;
        config->attributes[config_engine] = {type_descriptor, 1, {}, {engine}};
        config->finalized = true;
        configurations.descriptors.push_back(std::move(config));
      }
      return configurations;
    }
    default:  // no other notes, no knobs
      break;
  }
  return made;
}

/// `count`: how many elements there are; where some are to be written, how many were. The documentation
/// always has the first number. NVIDIA's frontend takes it for the length of the list that it gave, and
/// PyTorch 2.15 asks for the first configuration only.
int tell(const Attribute& attribute, std::int64_t requested, std::int64_t* count, void* elements) {
  const std::int64_t written = std::min(requested, attribute.count);
  if (count != nullptr) *count = elements == nullptr ? attribute.count : written;
  if (elements == nullptr) return success;
  const auto given = static_cast<std::size_t>(written);
  if (attribute.descriptors.empty()) {
    if (given != 0) std::memcpy(elements, attribute.bytes.data(), given * bytes_of_type(attribute.type));
    return success;
  }
  // The program gives descriptors of the right kind to be filled.
  for (std::size_t i = 0; i < given; ++i) {
    Backend* const into = find_backend(static_cast<void**>(elements)[i]);
    if (into == nullptr) return bad_param_null_pointer;
    if (into->content->kind != attribute.descriptors[i]->kind) return bad_param_descriptor_type;
    into->content = std::make_shared<Content>(*attribute.descriptors[i]);
  }
  return success;
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnBackendCreateDescriptor(int kind, void** descriptor) {
  return guarded([&]() -> int {
    if (descriptor == nullptr) return bad_param_null_pointer;
    if (kind < 0 || kind >= kinds) return not_supported;
    auto made = std::make_unique<Backend>();
    made->content = std::make_shared<Content>();
    made->content->kind = kind;
    *descriptor = made.release();
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cudnnBackendDestroyDescriptor(void* descriptor) {
  Backend* const found = find_backend(descriptor);
  if (found == nullptr) return descriptor == nullptr ? success : bad_param;
  found->alive = 0;
  delete found;
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnBackendInitialize(void* descriptor) {
  return find_backend(descriptor) == nullptr ? bad_param_null_pointer : success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnBackendFinalize(void* descriptor) {
  return guarded([&]() -> int {
    Backend* const found = find_backend(descriptor);
    if (found == nullptr) return bad_param_null_pointer;
    if (found->content->finalized) return success;
    if (const int bad = finalize(*found->content); bad != success) return bad;
    found->content->finalized = true;
    return success;
  });
}

GPUPOOL_LIBRARY_EXPORT int cudnnBackendSetAttribute(void* descriptor, int name, int type, std::int64_t count,
                                                    const void* elements) {
  return guarded([&]() -> int {
    Backend* const found = find_backend(descriptor);
    if (found == nullptr) return bad_param_null_pointer;
    Content& content = *found->content;
    if (content.finalized) return bad_param;
    if (has_rules(content.kind)) {
      const Rule* const rule = rule_of(content.kind, name);
      if (rule == nullptr || !rule->settable) return bad_param;
      if (!fits(*rule, type)) return bad_param_attribute_type;
      if (count > rule->most) return bad_param;
    } else if (type < 0 || type > type_graph_mode) {
      return bad_param_attribute_type;
    }
    if (count < 0 || count > many) return bad_param;
    if (elements == nullptr && count != 0) return bad_param_null_pointer;
    return keep(content, name, type, count, elements);
  });
}

GPUPOOL_LIBRARY_EXPORT int cudnnBackendGetAttribute(void* descriptor, int name, int type,
                                                    std::int64_t requested, std::int64_t* count,
                                                    void* elements) {
  return guarded([&]() -> int {
    const Backend* const found = find_backend(descriptor);
    if (found == nullptr) return bad_param_null_pointer;
    const std::shared_ptr<Content> content = found->content;
    if (!content->finalized) return bad_param_not_finalized;
    const Rule* const rule = rule_of(content->kind, name);
    if (rule == nullptr) return has_rules(content->kind) ? bad_param : not_supported;
    if (!fits(*rule, type)) return bad_param_attribute_type;
    if (requested < 0) return bad_param;
    const auto set = content->attributes.find(name);
    if (set == content->attributes.end()) return tell(known(content, name), requested, count, elements);
    if (set->second.type != type) return bad_param_attribute_type;
    return tell(set->second, requested, count, elements);
  });
}
