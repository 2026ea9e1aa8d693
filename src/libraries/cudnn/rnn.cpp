// Recurrent networks: all layers, steps and directions of a pass are one operation.
#include "libraries/cudnn/rnn.h"

#include <algorithm>

#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/tensors.h"
#include "libraries/shared/arguments.h"
#include "libraries/shared/refusal.h"

using namespace gpupool::cudnn;
using gpupool::libraries::address;

namespace {

using gpupool::operations::Rnn;
using gpupool::operations::RnnPass;
using gpupool::operations::RnnState;
using gpupool::operations::SequenceLayout;
using gpupool::operations::Sequences;

struct Space {
  const void* pointer;
  std::size_t bytes;

  [[nodiscard]] bool has(std::int64_t needed) const {
    return pointer != nullptr && bytes >= static_cast<std::size_t>(needed);
  }
};

struct RnnCall {
  const void *network, *x, *y, *h, *c;  // descriptors
  Space weights, workspace, reserve;
};

/// Whether a state's descriptor is that of the network's, of so many numbers without gaps. More dimensions,
/// as PyTorch gives, have length 1.
bool is_state(const void* descriptor, const gpupool::operations::RnnShape& shape, std::int64_t numbers,
              int data_type) {
  const TensorDescriptor* const found = find<TensorDescriptor>(descriptor);
  if (found == nullptr || found->dims < 3 || found->data_type != data_type) return false;
  const std::int64_t sizes[] = {shape.layers * shape.directions, shape.batch, numbers};
  const std::int64_t strides[] = {shape.batch * numbers, numbers, 1};
  return std::equal(sizes, sizes + 3, found->sizes) && std::equal(strides, strides + 3, found->strides) &&
         std::all_of(found->sizes + 3, found->sizes + found->dims, [](int size) { return size == 1; });
}
bool is_used(const RnnState& state) {
  return (state.first | state.last | state.first_gradient | state.last_gradient) != 0;
}

void describe(const RnnDataDescriptor& of, Sequences& into) {
  into.layout = static_cast<SequenceLayout>(of.layout);
  into.fills = of.fill.has_value();
  into.fill = of.fill.value_or(0);
}

/// The lengths stand in the operation: the copy in device memory that cuDNN is given says the same.
int set_lengths(const RnnDataDescriptor& x, Rnn& operation) {
  if (std::all_of(x.lengths.begin(), x.lengths.end(), [&](int length) { return length == x.steps; }))
    return success;
  if (x.layout == static_cast<int>(SequenceLayout::packed) &&
      !std::is_sorted(x.lengths.rbegin(), x.lengths.rend()))
    return bad_param;
  if (x.batch > Rnn::most_lengths || x.steps > 0xFFFF) {
    gpupool::libraries::say_once("a recurrent network (cuDNN)",
                                 "has at most 1024 sequences of different lengths, of 65535 steps");
    return not_supported;
  }
  operation.lengths_given = true;
  std::copy(x.lengths.begin(), x.lengths.end(), operation.lengths);
  return success;
}

/// What all passes have in common; `operation` comes with addresses.
int recur(void* handle, const RnnCall& call, Rnn operation) {
  return guarded([&]() -> int {
    const Handle* const found = find_handle(handle);
    const RnnDescriptor* const network = find<RnnDescriptor>(call.network);
    const RnnDataDescriptor* const x = find<RnnDataDescriptor>(call.x);
    const RnnDataDescriptor* const y = find<RnnDataDescriptor>(call.y);
    if (found == nullptr || network == nullptr || !network->set || x == nullptr || y == nullptr)
      return bad_param;
    operation.shape = shape_of(*network, x);
    const auto& shape = operation.shape;
    if (x->batch == 0 || x->data_type != network->data_type || y->data_type != network->data_type ||
        x->vector != network->input || y->vector != shape.width() || x->steps != y->steps ||
        x->layout != y->layout || x->lengths != y->lengths)
      return bad_param;
    if (!shape.sound()) return not_supported;
    if (shape.cell != gpupool::operations::Cell::lstm) operation.c = {};
    if ((is_used(operation.h) && !is_state(call.h, shape, shape.state(), network->data_type)) ||
        (is_used(operation.c) && !is_state(call.c, shape, shape.hidden, network->data_type)))
      return bad_param;
    if (!call.weights.has(bytes_of_weights(shape))) return bad_param;
    const bool inference = operation.pass == RnnPass::inference;
    if (inference && !call.workspace.has(shape.inference())) return bad_param;
    if (!inference && !call.reserve.has(shape.reserve_to_have())) return bad_param;
    if (operation.pass == RnnPass::backward_data && !call.workspace.has(shape.workspace())) return bad_param;
    if (operation.pass == RnnPass::training && shape.drops && network->states == nullptr) return bad_param;
    if (const int bad = set_lengths(*x, operation); bad != success) return bad;
    describe(*x, operation.x);
    describe(*y, operation.y);
    operation.reserve = address(inference ? call.workspace.pointer : call.reserve.pointer);
    operation.workspace = inference ? 0 : address(call.workspace.pointer);
    operation.states = address(network->states);
    operation.reserve_bytes = inference ? 0 : call.reserve.bytes;
    operation.math = static_cast<std::uint8_t>(network->math);
    operation.rate = static_cast<double>(network->rate);
    return post(*found, operation);
  });
}

}  // namespace

GPUPOOL_LIBRARY_EXPORT int cudnnRNNForward(void* handle, const void* network, int mode, const std::int32_t*,
                                           const void* x_descriptor, const void* x, const void* y_descriptor,
                                           void* y, const void* h_descriptor, const void* hx, void* hy,
                                           const void* c_descriptor, const void* cx, void* cy,
                                           std::size_t weight_bytes, const void* weights,
                                           std::size_t workspace_bytes, void* workspace,
                                           std::size_t reserve_bytes, void* reserve) {
  if (x == nullptr || y == nullptr || mode < 0 || mode > 1) return bad_param;
  Rnn operation;
  operation.pass = mode == 0 ? RnnPass::inference : RnnPass::training;
  operation.x.address = address(x);
  operation.y.address = address(y);
  operation.h = {address(hx), address(hy), 0, 0};
  operation.c = {address(cx), address(cy), 0, 0};
  operation.weights = address(weights);
  return recur(handle,
               {network,
                x_descriptor,
                y_descriptor,
                h_descriptor,
                c_descriptor,
                {weights, weight_bytes},
                {workspace, workspace_bytes},
                {reserve, reserve_bytes}},
               operation);
}

GPUPOOL_LIBRARY_EXPORT int cudnnRNNBackwardData_v8(
    void* handle, const void* network, const std::int32_t*, const void* y_descriptor, const void* y,
    const void* dy, const void* x_descriptor, void* dx, const void* h_descriptor, const void* hx,
    const void* dhy, void* dhx, const void* c_descriptor, const void* cx, const void* dcy, void* dcx,
    std::size_t weight_bytes, const void* weights, std::size_t workspace_bytes, void* workspace,
    std::size_t reserve_bytes, void* reserve) {
  if (y == nullptr || dy == nullptr || dx == nullptr) return bad_param;
  Rnn operation;
  operation.pass = RnnPass::backward_data;
  operation.y.address = address(y);
  operation.y.gradient = address(dy);
  operation.x.gradient = address(dx);
  operation.h = {address(hx), 0, address(dhx), address(dhy)};
  operation.c = {address(cx), 0, address(dcx), address(dcy)};
  operation.weights = address(weights);
  return recur(handle,
               {network,
                x_descriptor,
                y_descriptor,
                h_descriptor,
                c_descriptor,
                {weights, weight_bytes},
                {workspace, workspace_bytes},
                {reserve, reserve_bytes}},
               operation);
}

/// It follows …BackwardData, which left the gradients of the gates in the reserve space.
GPUPOOL_LIBRARY_EXPORT int cudnnRNNBackwardWeights_v8(void* handle, const void* network, int adds,
                                                      const std::int32_t*, const void* x_descriptor,
                                                      const void* x, const void* h_descriptor, const void* hx,
                                                      const void* y_descriptor, const void* y,
                                                      std::size_t weight_bytes, void* weights_gradient,
                                                      std::size_t workspace_bytes, void* workspace,
                                                      std::size_t reserve_bytes, void* reserve) {
  if (x == nullptr || y == nullptr || adds < 0 || adds > 1) return bad_param;
  Rnn operation;
  operation.pass = RnnPass::backward_weights;
  operation.adds = adds == 0;  // else they are set
  operation.x.address = address(x);
  operation.y.address = address(y);
  operation.h.first = address(hx);
  operation.weights_gradient = address(weights_gradient);
  return recur(handle,
               {network,
                x_descriptor,
                y_descriptor,
                h_descriptor,
                nullptr,
                {weights_gradient, weight_bytes},
                {workspace, workspace_bytes},
                {reserve, reserve_bytes}},
               operation);
}
