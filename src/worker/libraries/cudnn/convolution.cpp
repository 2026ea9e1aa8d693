// Convolutions by cuDNN's graphs: a plan is made once, and then costs one call. Where no engine does a graph,
// the older functions for the three directions are asked, which look for an algorithm anew at each call. What
// is added, a bias and an activation are calls of their own around it: one engine does not do all of them,
// and each does the convolution.
#include "libraries/operations/convolution.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>

#include "worker/libraries/cudnn/graph.h"

namespace gpupool::worker {
namespace {

using operations::Activation;
using operations::Convolution;
using operations::ConvolutionDirection;
using operations::Element;
using operations::Tensor;

/// cudnnConvolution…AlgoPerf_t: the three have one layout.
struct Performance {
  int algorithm, status;
  float milliseconds;
  std::size_t memory;
  int determinism, math;
  int reserved[3];
};

/// The names of a direction's functions, and the order in which they take input, filter and output: `first`
/// and `second` are given, `target` is computed.
struct Direction {
  const char *heuristic, *workspace, *execute;
  const Tensor Convolution::* first;
  const Tensor Convolution::* second;
  const Tensor Convolution::* target;
};
Direction direction_of(ConvolutionDirection direction) {
  switch (direction) {
    case ConvolutionDirection::backward_data:
      return {"cudnnGetConvolutionBackwardDataAlgorithm_v7",
              "cudnnGetConvolutionBackwardDataWorkspaceSize",
              "cudnnConvolutionBackwardData",
              &Convolution::filter,
              &Convolution::output,
              &Convolution::input};
    case ConvolutionDirection::backward_filter:
      return {"cudnnGetConvolutionBackwardFilterAlgorithm_v7",
              "cudnnGetConvolutionBackwardFilterWorkspaceSize",
              "cudnnConvolutionBackwardFilter",
              &Convolution::input,
              &Convolution::output,
              &Convolution::filter};
    default:
      return {"cudnnGetConvolutionForwardAlgorithm_v7",
              "cudnnGetConvolutionForwardWorkspaceSize",
              "cudnnConvolutionForward",
              &Convolution::input,
              &Convolution::filter,
              &Convolution::output};
  }
}

/// The numbers of tensors in a graph.
enum ConvolutionId : std::int64_t { id_input = 1, id_filter, id_output };

/// Also a dimension of length 1 counts where it is padded: then a result may lie beside all that there is.
int dims_of_all(const Convolution& of) {
  int most = dims_of({&of.input, &of.filter, &of.output});
  for (int d = 0; d < Convolution::space; ++d) {
    if (of.padding[d] != 0) most = std::max(most, 2 + Convolution::space - d);
  }
  return most;
}

/// One convolution and its descriptors.
class ConvolutionCall {
 public:
  ConvolutionCall(const Execution& x, const Convolution& of)
      : x_(x),
        of_(of),
        how_(direction_of(of.direction)),
        dnn_(x),
        dims_(dims_of_all(of)),
        one_(1, of.input.type),
        zero_(0, of.input.type) {}

  CUresult run() {
    const Tensor& target = of_.*how_.target;
    // What is added lies where the result goes, or is brought there.
    const bool adds = of_.beta != 0 && of_.added.address != 0;
    const bool in_place = of_.added.address == target.address;
    if (adds && !in_place) {
      const DnnScalar beta(of_.beta, of_.input.type);
      dnn_.call("cudnnTransformTensor", beta.place(), dnn_.tensor(of_.added, dims_), place_of(of_.added),
                zero_.place(), whole(), place_of(target));
    }
    convolve(!adds ? 0 : in_place ? of_.beta : 1);
    if (of_.bias.address != 0) {
      dnn_.call("cudnnAddTensor", one_.place(), dnn_.tensor(of_.bias, dims_), place_of(of_.bias),
                one_.place(), whole(), place_of(target));
    }
    if (of_.activation.activation != Activation::identity) {
      dnn_.call("cudnnActivationForward", dnn_.activation(of_.activation), one_.place(), whole(),
                place_of(target), zero_.place(), whole(), place_of(target));
    }
    return dnn_.result();
  }

 private:
  /// The descriptor of the result as a tensor.
  void* whole() {
    if (whole_ == nullptr) whole_ = dnn_.tensor(of_.*how_.target, dims_);
    return whole_;
  }

  void convolve(double beta) {
    if (by_plan(beta)) return;
    describe();
    by_function(DnnScalar(of_.alpha, of_.input.type), DnnScalar(beta, of_.input.type));
  }

  /// False: no engine does it, or none with the memory that is there; nothing has been done yet.
  bool by_plan(double beta) {
    for (const std::size_t most : {Workspace::most_plan_bytes, Workspace::most_bytes}) {
      Dnn trial(x_, dnn_);  // what it fails at is tried in another way
      DnnPlan* const plan = planned(trial, beta, most);
      if (plan == nullptr) return false;
      const bool executed = execute_plan(
          x_, trial, *plan,
          {{id_input, of_.input.address}, {id_filter, of_.filter.address}, {id_output, of_.output.address}});
      if (executed && Dnn::lasts(trial.status())) {
        plan->status = trial.status();  // it is not tried again, and ends when nothing can be at work
        return false;
      }
      if (executed) {
        dnn_.fail(trial.status());
        return true;
      }
      if (plan->workspace <= Workspace::most_bytes) return false;  // the next one would be the same
    }
    return false;
  }

  /// Null: no engine does it. Clients tell programs that what they compute is deterministic, and with which
  /// precision.
  DnnPlan* planned(Dnn& trial, double beta, std::size_t most_workspace) {
    const std::string key = key_of(of_, [&](Convolution& of) {
      for (Tensor* const tensor : {&of.input, &of.filter, &of.output}) tensor->address &= 31;
      of.added = of.bias = {};
      of.activation = {};
      of.beta = beta;
    });
    constexpr std::uint8_t converted = 2;
    const auto accepts = [&](std::span<const int> notes) {
      const auto has = [&](DnnGraph::Note note) {
        return std::find(notes.begin(), notes.end(), note) != notes.end();
      };
      const bool exact = of_.math == Convolution::no_tensor_cores && of_.input.type == Element::f32;
      return !has(DnnGraph::nondeterministic) && !(exact && has(DnnGraph::tensor_core)) &&
             (of_.math == converted || !has(DnnGraph::converts_down));
    };
    const bool small = most_workspace == Workspace::most_bytes;
    return kept_plan(
        x_, trial, Convolution::name + key + (small ? "small" : ""),
        [&](DnnGraph& graph) {
          const int left_out = 2 + Convolution::space - dims_;
          const auto space = [&](const std::int64_t (&of)[Convolution::space]) {
            return std::span<const std::int64_t>(of).subspan(static_cast<std::size_t>(left_out));
          };
          graph.convolve({of_.direction, graph.operand(id_input, of_.input, dims_),
                          graph.operand(id_filter, of_.filter, dims_),
                          graph.operand(id_output, of_.output, dims_), space(of_.padding), space(of_.stride),
                          space(of_.dilation), of_.flipped != 0, of_.input.type == Element::f64, of_.alpha,
                          beta});
        },
        accepts, most_workspace);
  }

  /// Whether channels lie next to each other, and nothing else does.
  static bool has_channels_last(const Tensor& tensor) {
    bool others = false;
    for (int i = 2; i < tensor.dims; ++i) others = others || (tensor.sizes[i] != 1 && tensor.strides[i] == 1);
    return tensor.sizes[1] != 1 && tensor.strides[1] == 1 && !others;
  }

  /// Filters lie without gaps: by channels first, or last. Those of one channel or one place lie in both ways
  /// at once, and go with the tensors.
  void* filter(const Tensor& filter) {
    constexpr int nchw = 0, nhwc = 1;
    int sizes[operations::max_dims], count = 0;
    bool first = true, last = true;
    std::int64_t apart_first = 1, apart_last = filter.sizes[1];
    for (int i = filter.dims - 1; i >= 2; --i) {
      first = first && (filter.sizes[i] == 1 || filter.strides[i] == apart_first);
      last = last && (filter.sizes[i] == 1 || filter.strides[i] == apart_last);
      apart_first *= filter.sizes[i];
      apart_last *= filter.sizes[i];
    }
    first = first && (filter.sizes[1] == 1 || filter.strides[1] == apart_first);
    last = last && (filter.sizes[1] == 1 || filter.strides[1] == 1);
    const std::int64_t whole = apart_first * filter.sizes[1];
    if ((!first && !last) || (filter.sizes[0] != 1 && filter.strides[0] != whole))
      dnn_.fail(Dnn::not_supported);
    const bool both = first && last;
    const bool by_last = both ? has_channels_last(of_.input) || has_channels_last(of_.output) : last;
    for (int i = 0; i < filter.dims; ++i) {
      if (i < 2 || i >= filter.dims - (dims_ - 2)) sizes[count++] = static_cast<int>(filter.sizes[i]);
    }
    void* const descriptor = dnn_.make("Filter");
    dnn_.describe("cudnnSetFilterNdDescriptor", descriptor, data_type_of(filter.type), by_last ? nhwc : nchw,
                  count, static_cast<const int*>(sizes));
    return descriptor;
  }

  void describe() {
    const Tensor* const tensors[] = {&(of_.*how_.first), &(of_.*how_.second), &(of_.*how_.target)};
    for (int i = 0; i < 3; ++i) {
      described_[i] = tensors[i] == &of_.filter ? filter(*tensors[i]) : dnn_.tensor(*tensors[i], dims_);
    }
    int padding[Convolution::space], stride[Convolution::space], dilation[Convolution::space];
    const int space = dims_ - 2, left_out = Convolution::space - space;
    for (int i = 0; i < space; ++i) {
      padding[i] = static_cast<int>(of_.padding[left_out + i]);
      stride[i] = static_cast<int>(of_.stride[left_out + i]);
      dilation[i] = static_cast<int>(of_.dilation[left_out + i]);
    }
    const Element type = of_.input.type;
    convolution_ = dnn_.make("Convolution");
    dnn_.describe("cudnnSetConvolutionNdDescriptor", convolution_, space, static_cast<const int*>(padding),
                  static_cast<const int*>(stride), static_cast<const int*>(dilation), of_.flipped ? 0 : 1,
                  type == Element::f64 ? data_type_of(Element::f64) : data_type_of(Element::f32));
    dnn_.describe("cudnnSetConvolutionGroupCount", convolution_, static_cast<int>(of_.groups));
    dnn_.describe("cudnnSetConvolutionMathType", convolution_, int{of_.math});
  }

  /// The first deterministic one of those that the library's heuristic names whose workspace is not too
  /// large, or else the one with the smallest: clients tell programs that what they compute is deterministic.
  int algorithm() {
    const std::string key = key_of(of_, [](Convolution& of) {
      for (Tensor* const tensor : {&of.input, &of.filter, &of.output, &of.added, &of.bias})
        tensor->address &= 255;  // its alignment counts
      of.alpha = of.beta = 0;
    });
    const auto [known, is_new] = x_.state.convolutions.try_emplace(key, -1);
    if (!is_new) return known->second;
    constexpr int asked = 16;
    Performance found[asked] = {};
    int count = 0;
    dnn_.call(how_.heuristic, described_[0], described_[1], convolution_, described_[2], asked, &count,
              static_cast<Performance*>(found));
    const Performance* best = nullptr;
    bool varies = false;
    for (const Performance& each : std::span(found, static_cast<std::size_t>(std::clamp(count, 0, asked)))) {
      if (each.status != 0) continue;
      varies = varies || each.determinism == 0;
      if (each.determinism == 0) continue;
      if (best == nullptr || each.memory < best->memory) best = &each;
      if (each.memory <= Workspace::most_bytes) {
        best = &each;
        break;
      }
    }
    if (!dnn_.good() || best == nullptr) {
      if (varies)
        x_.libraries.explain("this node's cuDNN knows only ways whose results differ from time to time");
      dnn_.fail(Dnn::not_supported);
      x_.state.convolutions.erase(known);
      return -1;
    }
    known->second = best->algorithm;
    return known->second;
  }

  void by_function(const DnnScalar& alpha, const DnnScalar& beta) {
    const int how = algorithm();
    std::size_t bytes = 0;
    dnn_.call(how_.workspace, described_[0], described_[1], convolution_, described_[2], how, &bytes);
    if (!dnn_.good()) return;
    const Workspace workspace(x_, bytes);
    if (!workspace.there()) return dnn_.fail(Dnn::no_memory);
    dnn_.call(how_.execute, alpha.place(), described_[0], place_of(of_.*how_.first), described_[1],
              place_of(of_.*how_.second), convolution_, how, workspace.address(), workspace.bytes(),
              beta.place(), described_[2], place_of(of_.*how_.target));
  }

  const Execution& x_;
  const Convolution& of_;
  const Direction how_;
  Dnn dnn_;
  const int dims_;
  const DnnScalar one_, zero_;
  void* described_[3] = {};
  void *convolution_ = nullptr, *whole_ = nullptr;
};

}  // namespace

CUresult run(const Execution& x, const Convolution& operation) {
  return ConvolutionCall(x, operation).run();
}

}  // namespace gpupool::worker
