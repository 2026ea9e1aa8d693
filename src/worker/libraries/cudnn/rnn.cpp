// Recurrent networks by cuDNN. Clients arrange weights in one way; the library may have another, which is
// asked for: then they are brought there, matrix by matrix.
#include "worker/libraries/cudnn/rnn.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace gpupool::worker {
namespace {

using operations::Element;
using operations::Rnn;
using operations::RnnPass;
using operations::RnnShape;
using operations::SequenceLayout;
using operations::Sequences;

/// A number as the memory of a type has it.
struct Filling {
  std::byte bytes[8] = {};

  Filling(double value, Element type) {
    const auto narrow = static_cast<float>(value);
    const std::uint16_t brief = operations::bfloat16_of(narrow);
    if (type == Element::f64) std::memcpy(bytes, &value, sizeof value);
    if (type == Element::f32) std::memcpy(bytes, &narrow, sizeof narrow);
    if (type == Element::bf16) std::memcpy(bytes, &brief, sizeof brief);
  }
};

class RnnCall {
 public:
  RnnCall(const Execution& x, const RnnLayers& layers)
      : x_(x),
        layers_(layers),
        of_(layers.of),
        shape_(layers.of.shape),
        dnn_(x),
        type_(data_type_of(layers.of.shape.type)) {}

  CUresult reserve(std::size_t& bytes) {
    std::size_t work_bytes = 0;
    return ask_sizes(work_bytes, bytes);
  }

  CUresult run() {
    std::size_t work_bytes = 0, reserve_bytes = 0;
    if (const CUresult bad = ask_sizes(work_bytes, reserve_bytes); bad != CUDA_SUCCESS) return bad;
    if (of_.pass != RnnPass::inference && reserve_bytes > of_.reserve_bytes)
      return refuse_reserve(x_, reserve_bytes, of_.reserve_bytes);
    const RnnWeights& weights = placed();
    if (!dnn_.good()) return dnn_.result();
    // Also where each matrix has its place: the library may want more behind the last one.
    const Workspace own(x_, weights.in_place ? 0 : weights.bytes);
    const Workspace work(x_, work_bytes);
    if (!own.there() || !work.there()) return result_of_cudnn(Dnn::no_memory);
    const bool gradient = of_.pass == RnnPass::backward_weights;
    const std::uint64_t given = gradient ? of_.weights_gradient : of_.weights;
    const auto used = weights.in_place ? given : reinterpret_cast<std::uint64_t>(own.address());
    if (!weights.in_place) {
      if (const CUresult bad = x_.libraries.api.cuMemsetD8Async_(used, 0, weights.bytes, x_.stream);
          bad != CUDA_SUCCESS)
        return bad;
      if (const CUresult bad = bring(weights, given, used, false); bad != CUDA_SUCCESS) return bad;
    }
    execute(pointer<void>(used), weights.bytes, work, reserve_bytes);
    if (!dnn_.good() || weights.in_place || !gradient) return dnn_.result();
    return bring(weights, given, used, true);
  }

 private:
  CUresult ask_sizes(std::size_t& work_bytes, std::size_t& reserve_bytes) {
    if (type_ < 0) return CUDA_ERROR_NOT_SUPPORTED;
    describe();
    dnn_.call("cudnnGetRNNTempSpaceSizes", network_, of_.pass == RnnPass::inference ? 0 : 1, x_data_,
              &work_bytes, &reserve_bytes);
    return dnn_.result();
  }

  void describe() {
    void* const dropout = dnn_.make("Dropout");
    dnn_.call_with("cudnnSetDropoutDescriptor", dropout, 0.0F, static_cast<void*>(nullptr), std::size_t{0},
                   0ULL);
    network_ = dnn_.make("RNN");
    constexpr int standard = 0, linear_input = 0;
    constexpr std::uint32_t with_gaps = 1;  // steps behind the end of a sequence have their places
    const int precision = data_type_of(shape_.type == Element::f64 ? Element::f64 : Element::f32);
    dnn_.describe("cudnnSetRNNDescriptor_v8", network_, standard, static_cast<int>(shape_.cell),
                  static_cast<int>(shape_.bias), shape_.directions == 2 ? 1 : 0, linear_input, type_,
                  precision, int{of_.math}, static_cast<std::int32_t>(shape_.input),
                  static_cast<std::int32_t>(shape_.hidden), static_cast<std::int32_t>(shape_.state()),
                  static_cast<std::int32_t>(shape_.layers), dropout, with_gaps);
    lengths_.resize(static_cast<std::size_t>(shape_.batch));
    for (std::size_t i = 0; i < lengths_.size(); ++i)
      lengths_[i] = static_cast<int>(of_.length(static_cast<std::int64_t>(i)));
    x_data_ = data(of_.x, shape_.input);
    y_data_ = data(of_.y, shape_.width());
    state_ = state(shape_.state());
    cells_ = shape_.cell == operations::Cell::lstm ? state(shape_.hidden) : nullptr;
  }

  void* state(std::int64_t numbers) {
    constexpr int dims = 3;
    const int sizes[dims] = {static_cast<int>(shape_.layers * shape_.directions),
                             static_cast<int>(shape_.batch), static_cast<int>(numbers)};
    const int strides[dims] = {sizes[1] * sizes[2], sizes[2], 1};
    void* const made = dnn_.make("Tensor");
    dnn_.describe("cudnnSetTensorNdDescriptor", made, type_, dims, static_cast<const int*>(sizes),
                  static_cast<const int*>(strides));
    return made;
  }

  void* data(const Sequences& of, std::int64_t vector) {
    if (of.layout > SequenceLayout::sequences) dnn_.fail(Dnn::not_supported);
    Filling filling(of.fill, shape_.type);
    if (of.fills != 0 && of.fill != 0 && shape_.type == Element::f16) dnn_.fail(Dnn::not_supported);
    void* const made = dnn_.make("RNNData");
    dnn_.describe("cudnnSetRNNDataDescriptor", made, type_, static_cast<int>(of.layout),
                  static_cast<int>(shape_.steps), static_cast<int>(shape_.batch), static_cast<int>(vector),
                  static_cast<const int*>(lengths_.data()),
                  of.fills != 0 ? static_cast<void*>(filling.bytes) : nullptr);
    return made;
  }

  /// Where the library has each matrix and bias, found out once for a shape.
  const RnnWeights& placed() {
    struct {
      RnnShape layers, whole;
      std::int64_t first;
    } key{shape_, layers_.whole, layers_.first};
    key.layers.steps = key.layers.batch = key.whole.steps = key.whole.batch = 1;
    const auto [known, is_new] =
        x_.state.networks.try_emplace({reinterpret_cast<const char*>(&key), sizeof key});
    if (is_new) find(known->second);
    if (is_new && !dnn_.good()) {
      x_.state.networks.erase(known);
      static const RnnWeights none;
      return none;
    }
    return known->second;
  }

  void find(RnnWeights& into) {
    dnn_.call("cudnnGetRNNWeightSpaceSize", network_, &into.bytes);
    descriptors_[0] = dnn_.make("Tensor");
    descriptors_[1] = dnn_.make("Tensor");
    const auto gates = static_cast<std::int32_t>(shape_.gates());
    const RnnShape& whole = layers_.whole;
    for (std::int64_t layer = 0; layer < shape_.layers; ++layer) {
      for (std::int64_t direction = 0; direction < shape_.directions; ++direction) {
        const std::int64_t layer_of_all = layers_.first + layer,
                           network = layer * shape_.directions + direction;
        for (std::int32_t gate = 0; gate < 2 * gates; ++gate) {
          const auto [matrix, bias] = ask_places(into, network, gate);
          if (!dnn_.good()) return;
          const bool recurrent = gate >= gates;
          const std::int64_t first = gate % gates * shape_.hidden,
                             columns = recurrent ? shape_.state() : shape_.input_of(layer);
          add(into, matrix, whole.matrix(layer_of_all, direction, recurrent) + first * columns,
              shape_.hidden * columns);
          if (shape_.has_bias(recurrent))
            add(into, bias, whole.bias_of(layer_of_all, direction, recurrent) + first, shape_.hidden);
        }
        if (!shape_.projects()) continue;
        const auto [matrix, none] = ask_places(into, network, 2 * gates);
        if (!dnn_.good()) return;
        add(into, matrix, whole.projection_of(layer_of_all, direction), shape_.projection * shape_.hidden);
      }
    }
    into.in_place = into.bytes <= static_cast<std::uint64_t>(whole.weights() * element_bytes()) &&
                    std::all_of(into.pieces.begin(), into.pieces.end(),
                                [](const RnnWeights::Piece& piece) { return piece.ours == piece.theirs; });
  }

  [[nodiscard]] std::int64_t element_bytes() const {
    return static_cast<std::int64_t>(bytes_of(shape_.type));
  }
  /// Only distances from it count.
  [[nodiscard]] std::uint64_t base() const {
    return of_.pass == RnnPass::backward_weights ? of_.weights_gradient : of_.weights;
  }

  /// A matrix and its bias.
  std::pair<void*, void*> ask_places(const RnnWeights& of, std::int64_t network, std::int32_t gate) {
    void *matrix = nullptr, *bias = nullptr;
    dnn_.call("cudnnGetRNNWeightParams", network_, static_cast<std::int32_t>(network), of.bytes,
              static_cast<const void*>(pointer<void>(base())), gate, descriptors_[0], &matrix,
              descriptors_[1], &bias);
    return {matrix, bias};
  }

  void add(RnnWeights& into, void* theirs, std::int64_t ours, std::int64_t count) {
    const auto at = reinterpret_cast<std::uint64_t>(theirs) - base();
    const auto bytes = static_cast<std::uint64_t>(count * element_bytes());
    if (theirs == nullptr || at > into.bytes || bytes > into.bytes - at) return dnn_.fail(Dnn::not_supported);
    into.pieces.push_back({static_cast<std::uint64_t>(ours * element_bytes()), at, bytes});
  }

  CUresult bring(const RnnWeights& weights, std::uint64_t ours, std::uint64_t theirs, bool back) {
    for (const RnnWeights::Piece& piece : weights.pieces) {
      const std::uint64_t one = ours + piece.ours, other = theirs + piece.theirs;
      const CUresult result = x_.libraries.api.cuMemcpyDtoDAsync_v2_(back ? one : other, back ? other : one,
                                                                     piece.bytes, x_.stream);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  }

  void execute(void* weights, std::size_t weight_bytes, const Workspace& work, std::size_t reserve_bytes) {
    const std::int32_t* const no_lengths = nullptr;  // the descriptors have them
    const auto at = [](std::uint64_t address) { return pointer<void>(address); };
    const bool inference = of_.pass == RnnPass::inference;
    void* const reserve = inference ? nullptr : at(of_.reserve);
    const std::size_t kept = inference ? 0 : reserve_bytes;
    switch (of_.pass) {
      case RnnPass::inference:
      case RnnPass::training:
        return dnn_.call("cudnnRNNForward", network_, inference ? 0 : 1, no_lengths, x_data_,
                         at(of_.x.address), y_data_, at(of_.y.address), state_, at(of_.h.first),
                         at(of_.h.last), cells_, at(of_.c.first), at(of_.c.last), weight_bytes, weights,
                         work.bytes(), work.address(), kept, reserve);
      case RnnPass::backward_data:
        return dnn_.call("cudnnRNNBackwardData_v8", network_, no_lengths, y_data_, at(of_.y.address),
                         at(of_.y.gradient), x_data_, at(of_.x.gradient), state_, at(of_.h.first),
                         at(of_.h.last_gradient), at(of_.h.first_gradient), cells_, at(of_.c.first),
                         at(of_.c.last_gradient), at(of_.c.first_gradient), weight_bytes, weights,
                         work.bytes(), work.address(), kept, reserve);
      case RnnPass::backward_weights:
        return dnn_.call("cudnnRNNBackwardWeights_v8", network_, of_.adds != 0 ? 0 : 1, no_lengths, x_data_,
                         at(of_.x.address), state_, at(of_.h.first), y_data_, at(of_.y.address), weight_bytes,
                         weights, work.bytes(), work.address(), kept, reserve);
    }
  }

  const Execution& x_;
  const RnnLayers& layers_;
  const Rnn& of_;
  const RnnShape& shape_;
  Dnn dnn_;
  const int type_;
  std::vector<int> lengths_;
  void *network_ = nullptr, *x_data_ = nullptr, *y_data_ = nullptr, *state_ = nullptr, *cells_ = nullptr;
  void* descriptors_[2] = {};  // of a matrix and of its bias
};

}  // namespace

CUresult run_layers(const Execution& x, const RnnLayers& layers) {
  return RnnCall(x, layers).run();
}

CUresult reserve_of(const Execution& x, const RnnLayers& layers, std::size_t& bytes) {
  return RnnCall(x, layers).reserve(bytes);
}

CUresult refuse_reserve(const Execution& x, std::size_t wanted, std::uint64_t there) {
  x.libraries.explain("this node's cuDNN wants a reserve space of " + std::to_string(wanted) +
                      " bytes, and the program has one of " + std::to_string(there));
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult run(const Execution& x, const Rnn& operation) {
  if (operation.shape.drops != 0 && operation.pass != RnnPass::inference)
    return run_with_dropout(x, operation);
  return run_layers(x, {operation, operation.shape, 0});
}

}  // namespace gpupool::worker
