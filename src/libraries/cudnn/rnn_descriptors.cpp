// Descriptors of recurrent networks and of their data; the places of their weights.
#include <algorithm>
#include <span>

#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/rnn.h"
#include "libraries/cudnn/tensors.h"
#include "libraries/shared/refusal.h"

using namespace gpupool::cudnn;

namespace {

using gpupool::operations::RnnShape;

bool is_up_to(int value, int most) {
  return value >= 0 && value <= most;
}

int lacks(const char* what) {
  gpupool::libraries::say_once(what, "is not carried");
  return not_supported;
}

int set_vector(void* descriptor, int data_type, std::int64_t rows, std::int64_t columns) {
  TensorDescriptor* const into = find<TensorDescriptor>(descriptor);
  if (into == nullptr) return bad_param;
  *into = {};
  into->data_type = data_type;
  if (rows == 0) return success;  // there is none
  into->dims = 3;
  const int sizes[] = {1, static_cast<int>(rows), static_cast<int>(columns)};
  const int strides[] = {sizes[1] * sizes[2], sizes[2], 1};
  std::copy_n(sizes, 3, into->sizes);
  std::copy_n(strides, 3, into->strides);
  return success;
}

}  // namespace

namespace gpupool::cudnn {

RnnShape shape_of(const RnnDescriptor& network, const RnnDataDescriptor* data) {
  RnnShape shape;
  if (data != nullptr) {
    shape.steps = data->steps;
    shape.batch = data->batch;
  }
  shape.input = network.input;
  shape.hidden = network.hidden;
  shape.projection = network.projection == network.hidden ? 0 : network.projection;
  shape.layers = network.layers;
  shape.directions = network.direction == 0 ? 1 : 2;
  shape.cell = static_cast<operations::Cell>(network.cell);
  shape.bias = static_cast<operations::RnnBias>(network.bias);
  shape.type = element_of(network.data_type).value_or(Element::f32);
  shape.drops = network.rate > 0 && network.layers > 1;
  return shape;
}

}  // namespace gpupool::cudnn

GPUPOOL_LIBRARY_EXPORT int cudnnCreateRNNDescriptor(void** descriptor) {
  return create<RnnDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnDestroyRNNDescriptor(void* descriptor) {
  return destroy<RnnDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetRNNDescriptor_v8(void* descriptor, int algorithm, int cell, int bias,
                                                    int direction, int input_mode, int data_type,
                                                    int precision, int math, std::int32_t input,
                                                    std::int32_t hidden, std::int32_t projection,
                                                    std::int32_t layers, void* dropout, std::uint32_t flags) {
  RnnDescriptor* const found = find<RnnDescriptor>(descriptor);
  const DropoutDescriptor* const dropping = find<DropoutDescriptor>(dropout);
  if (found == nullptr || !is_up_to(algorithm, 3) || !is_up_to(cell, 3) || !is_up_to(bias, 3) ||
      !is_up_to(direction, 1) || !is_up_to(input_mode, 1) || !is_data_type(data_type) ||
      !is_data_type(precision) || !is_up_to(math, 3) || input <= 0 || hidden <= 0 || layers <= 0 ||
      projection <= 0 || projection > hidden || (dropout != nullptr && dropping == nullptr))
    return bad_param;
  constexpr int lstm = 2, standard = 0;
  if (projection != hidden && cell != lstm) return bad_param;
  if (projection != hidden && algorithm != standard) return not_supported;  // as NVIDIA's library
  if (input_mode != 0) return lacks("a recurrent network without matrices of its input (cuDNN)");
  const auto type = element_of(data_type);
  if (!type || !is_real(*type)) return not_supported;
  RnnDescriptor made;
  made.set = true;
  made.algorithm = algorithm;
  made.cell = cell;
  made.bias = bias;
  made.direction = direction;
  made.data_type = data_type;
  made.precision = precision;
  made.math = math;
  made.input = input;
  made.hidden = hidden;
  made.projection = projection;
  made.layers = layers;
  made.dropout = dropout;
  made.rate = dropping != nullptr ? dropping->rate : 0;
  made.states = dropping != nullptr ? dropping->states : nullptr;
  made.flags = flags;
  if (!shape_of(made, nullptr).sound()) return not_supported;
  *found = made;
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetRNNDescriptor_v8(const void* descriptor, int* algorithm, int* cell,
                                                    int* bias, int* direction, int* input_mode,
                                                    int* data_type, int* precision, int* math,
                                                    std::int32_t* input, std::int32_t* hidden,
                                                    std::int32_t* projection, std::int32_t* layers,
                                                    void** dropout, std::uint32_t* flags) {
  const RnnDescriptor* const found = find<RnnDescriptor>(descriptor);
  if (found == nullptr || !found->set) return bad_param;
  put(algorithm, found->algorithm);
  put(cell, found->cell);
  put(bias, found->bias);
  put(direction, found->direction);
  put(input_mode, found->input_mode);
  put(data_type, found->data_type);
  put(precision, found->precision);
  put(math, found->math);
  put(input, found->input);
  put(hidden, found->hidden);
  put(projection, found->projection);
  put(layers, found->layers);
  put(dropout, found->dropout);
  put(flags, found->flags);
  return success;
}

GPUPOOL_LIBRARY_EXPORT int cudnnCreateRNNDataDescriptor(void** descriptor) {
  return create<RnnDataDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnDestroyRNNDataDescriptor(void* descriptor) {
  return destroy<RnnDataDescriptor>(descriptor);
}
GPUPOOL_LIBRARY_EXPORT int cudnnSetRNNDataDescriptor(void* descriptor, int data_type, int layout, int steps,
                                                     int batch, int vector, const int* lengths,
                                                     const void* fill) {
  return guarded([&]() -> int {
    RnnDataDescriptor* const found = find<RnnDataDescriptor>(descriptor);
    if (found == nullptr || !is_data_type(data_type) || !is_up_to(layout, 2) || steps <= 0 || batch <= 0 ||
        vector <= 0 || lengths == nullptr)
      return bad_param;
    const std::span given(lengths, static_cast<std::size_t>(batch));
    if (std::any_of(given.begin(), given.end(), [&](int length) { return !is_up_to(length, steps); }))
      return bad_param;
    const auto type = element_of(data_type);
    if (!type || !is_real(*type)) return not_supported;
    found->data_type = data_type;
    found->layout = layout;
    found->steps = steps;
    found->batch = batch;
    found->vector = vector;
    found->lengths.assign(given.begin(), given.end());
    found->fill = fill == nullptr ? std::nullopt : number_of(fill, *type);
    return success;
  });
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetRNNDataDescriptor(const void* descriptor, int* data_type, int* layout,
                                                     int* steps, int* batch, int* vector, int requested,
                                                     int* lengths, void* fill) {
  const RnnDataDescriptor* const found = find<RnnDataDescriptor>(descriptor);
  if (found == nullptr || found->batch == 0 || requested < 0) return bad_param;
  put(data_type, found->data_type);
  put(layout, found->layout);
  put(steps, found->steps);
  put(batch, found->batch);
  put(vector, found->vector);
  if (lengths != nullptr) std::copy_n(found->lengths.begin(), std::min(requested, found->batch), lengths);
  if (fill != nullptr && found->fill) {
    if (*element_of(found->data_type) == Element::f64) {
      put(static_cast<double*>(fill), *found->fill);
    } else if (*element_of(found->data_type) == Element::f32) {
      put(static_cast<float*>(fill), static_cast<float>(*found->fill));
    } else {
      return not_supported;
    }
  }
  return success;
}

GPUPOOL_LIBRARY_EXPORT int cudnnGetRNNWeightSpaceSize(void* handle, const void* descriptor,
                                                      std::size_t* bytes) {
  const RnnDescriptor* const network = find<RnnDescriptor>(descriptor);
  if (find_handle(handle) == nullptr || network == nullptr || !network->set || bytes == nullptr)
    return bad_param;
  *bytes = static_cast<std::size_t>(bytes_of_weights(shape_of(*network, nullptr)));
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetRNNTempSpaceSizes(void* handle, const void* descriptor, int mode,
                                                     const void* x_descriptor, std::size_t* workspace,
                                                     std::size_t* reserve) {
  const RnnDescriptor* const network = find<RnnDescriptor>(descriptor);
  const RnnDataDescriptor* const x = find<RnnDataDescriptor>(x_descriptor);
  if (find_handle(handle) == nullptr || network == nullptr || !network->set || x == nullptr ||
      x->batch == 0 || x->vector != network->input || x->data_type != network->data_type ||
      !is_up_to(mode, 1))
    return bad_param;
  const RnnShape shape = shape_of(*network, x);
  if (!shape.sound()) return not_supported;
  const bool training = mode == 1;
  put(workspace, static_cast<std::size_t>(training ? shape.workspace() : shape.inference()));
  put(reserve, static_cast<std::size_t>(training ? shape.reserve_to_have() : 0));
  return success;
}
GPUPOOL_LIBRARY_EXPORT int cudnnGetRNNWeightParams(void* handle, const void* descriptor,
                                                   std::int32_t pseudo_layer, std::size_t bytes,
                                                   const void* weights, std::int32_t gate,
                                                   void* matrix_descriptor, void** matrix,
                                                   void* bias_descriptor, void** bias) {
  const RnnDescriptor* const network = find<RnnDescriptor>(descriptor);
  // PyTorch asks for one of the two.
  const bool wants_matrix = matrix_descriptor != nullptr || matrix != nullptr,
             wants_bias = bias_descriptor != nullptr || bias != nullptr;
  if (find_handle(handle) == nullptr || network == nullptr || !network->set ||
      (matrix_descriptor == nullptr) != (matrix == nullptr) ||
      (bias_descriptor == nullptr) != (bias == nullptr) || (!wants_matrix && !wants_bias))
    return bad_param;
  const RnnShape shape = shape_of(*network, nullptr);
  const std::int64_t layer = pseudo_layer / shape.directions, direction = pseudo_layer % shape.directions;
  // Behind the gates of LSTMs comes the projection, which has no bias.
  const std::int64_t all_gates = 2 * shape.gates();
  const bool projection = shape.cell == gpupool::operations::Cell::lstm && gate == all_gates;
  if (pseudo_layer < 0 || layer >= shape.layers || gate < 0 || (gate >= all_gates && !projection) ||
      static_cast<std::int64_t>(bytes) < bytes_of_weights(shape))
    return bad_param;
  const bool recurrent = gate >= shape.gates(), has_bias = !projection && shape.has_bias(recurrent);
  const std::int64_t first = gate % shape.gates() * shape.hidden,
                     columns = recurrent ? shape.state() : shape.input_of(layer);
  const auto address = [&](std::int64_t element) {
    const auto offset = element * static_cast<std::int64_t>(gpupool::operations::bytes_of(shape.type));
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(weights) +
                                   static_cast<std::uintptr_t>(offset));
  };
  if (wants_matrix && projection) {
    const int bad = set_vector(matrix_descriptor, network->data_type, shape.projection, shape.hidden);
    if (bad != success) return bad;
    *matrix = shape.projects() ? address(shape.projection_of(layer, direction)) : nullptr;
  } else if (wants_matrix) {
    const int bad = set_vector(matrix_descriptor, network->data_type, shape.hidden, columns);
    if (bad != success) return bad;
    *matrix = address(shape.matrix(layer, direction, recurrent) + first * columns);
  }
  if (wants_bias) {
    const int bad = set_vector(bias_descriptor, network->data_type, has_bias ? shape.hidden : 0, 1);
    if (bad != success) return bad;
    *bias = has_bias ? address(shape.bias_of(layer, direction, recurrent) + first) : nullptr;
  }
  return success;
}
