// A graph of cuDNN's backend: tensors, what is done with them, and the plan that executes it.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/libraries/cudnn/dnn.h"

namespace gpupool::worker {

/// A tensor of a graph: its descriptor, and sizes and strides of four dimensions.
struct DnnValue {
  void* descriptor = nullptr;
  std::int64_t sizes[4] = {}, strides[4] = {};
};

/// A convolution in one of its directions: three tensors (`DnnGraph::operand`), and numbers for each
/// dimension of space.
struct DnnConvolution {
  operations::ConvolutionDirection direction;
  void *input, *filter, *output;
  std::span<const std::int64_t> padding, stride, dilation;
  bool flipped, wide;  // wide: computed in double precision
  double alpha, beta;
};

/// Whether an engine with these notes (cudnnBackendNumericalNote_t) will do. Empty: any will.
using DnnAccepts = std::function<bool(std::span<const int>)>;

class DnnGraph {
 public:
  /// cudnnBackendNumericalNote_t.
  enum Note { tensor_core = 0, converts_down = 1, nondeterministic = 4 };
  // cudnnPointwiseMode_t, cudnnReduceTensorOp_t, cudnnDataType_t.
  enum Mode {
    add = 0,
    multiply = 1,
    divide = 6,
    subtract = 9,
    exp = 13,
    log = 15,
    identity = 21,
    greater = 302,
    greater_equal = 303,
    less = 304,
    both = 400,
    index = 501,
    select = 601
  };
  enum Reduction { sum = 0, maximum = 3 };
  static constexpr int single = 0, whole = 4, whole_64 = 10, boolean = 11;

  /// `most_workspace`: what a plan should not want more of.
  DnnGraph(const Execution& x, Dnn& dnn, DnnPlan& into, std::size_t most_workspace)
      : x_(x), dnn_(dnn), into_(into), most_workspace_(most_workspace) {}
  /// A plan needs none of the descriptors that it was made of but its configuration's.
  ~DnnGraph();
  DnnGraph(const DnnGraph&) = delete;
  DnnGraph& operator=(const DnnGraph&) = delete;

  /// A tensor in device memory; `turned`: its last two dimensions are exchanged.
  DnnValue tensor(std::int64_t id, const operations::Tensor& tensor, bool turned = false);
  /// Four sizes without gaps, of one of the types above.
  DnnValue placed(std::int64_t id, const std::int64_t (&sizes)[4], int type);
  /// One number, given with the plan's execution, in host memory (`by_value`) or in device memory.
  DnnValue number(std::int64_t id, int type, bool by_value);
  /// A number for each image, so far apart.
  DnnValue lengths(std::int64_t id, std::int64_t images, std::int64_t stride, bool wide);

  /// The result of single precision, rounded to another type.
  DnnValue point_as(int type, Mode mode, const DnnValue& x, const DnnValue& b);
  DnnValue point(Mode mode, const DnnValue& x, const DnnValue* b = nullptr, const DnnValue* t = nullptr,
                 int axis = -1);
  void point_into(Mode mode, const DnnValue& x, const DnnValue* b, const DnnValue* t, const DnnValue& y,
                  int axis = -1, int type = single);
  /// Places that others are moved to.
  DnnValue whole_like(const DnnValue& x) { return between(x.sizes, whole); }
  DnnValue product(const DnnValue& a, const DnnValue& b);
  void product_into(const DnnValue& a, const DnnValue& b, const DnnValue& c);
  DnnValue reduce(Reduction what, const DnnValue& x);
  void reduce_into(Reduction what, const DnnValue& x, const DnnValue& y);
  /// The last two dimensions are exchanged.
  DnnValue turn(const DnnValue& x, int type);
  /// 1 where a number is kept, 0 elsewhere.
  DnnValue random(double kept, const DnnValue& seed, const DnnValue& offset, const std::int64_t (&sizes)[4]);

  /// A tensor in device memory, of which so many dimensions count (`dims_of`).
  void* operand(std::int64_t id, const operations::Tensor& tensor, int dims);
  void convolve(const DnnConvolution& how);

  /// Looks for an engine for all of it: of those that are accepted the best that takes no more memory than it
  /// should, or else the one that takes least.
  void plan(const DnnAccepts& accepts);

 private:
  void* create(int kind);
  void set(void* descriptor, int name, int type, std::int64_t count, const void* elements);
  void set(void* descriptor, int name, int type, std::int64_t value) {
    set(descriptor, name, type, 1, &value);
  }
  void set_enum(void* descriptor, int name, int type, int value) { set(descriptor, name, type, 1, &value); }
  void set_descriptor(void* descriptor, int name, void* value);
  void finish(void* descriptor) { dnn_.describe("cudnnBackendFinalize", descriptor); }
  /// In device memory, in host memory when the plan is executed, or only between two operations.
  enum class Place { memory, given, nowhere };
  void* described(std::int64_t id, std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                  int type, std::int64_t alignment, Place place);
  /// Configurations of engines, the best first; none, and `status`, where the library failed to tell them.
  std::vector<void*> configurations(void* graph, int mode, int& status);
  /// Of its engine; none: the library does not tell them.
  std::optional<std::vector<int>> notes_of(void* configuration);
  /// Makes a plan of it, which is kept if it is the better one. The status is the library's.
  int try_configuration(void* configuration);
  [[nodiscard]] bool has_plan() const { return into_.plan != nullptr && into_.workspace <= most_workspace_; }
  /// Tensors lie in memory as they are allocated, unless more is known.
  static constexpr std::int64_t usual_alignment = 16;
  DnnValue made(std::int64_t id, const std::int64_t (&sizes)[4], const std::int64_t (&strides)[4], int type,
                Place place, std::int64_t alignment = usual_alignment);
  DnnValue between(const std::int64_t (&sizes)[4], int type = single);
  void node(void* operation);

  const Execution& x_;
  Dnn& dnn_;
  DnnPlan& into_;
  const std::size_t most_workspace_;
  std::vector<void*> descriptors_;  // in the order in which they were made
  std::vector<void*> operations_;
  std::int64_t next_ = 1000;  // of tensors that lie nowhere
};

/// The plan with this key, which `build` makes the graph of when it is asked for first. Null: there is none,
/// and `dnn` has failed. That is kept too, unless it may do another time.
DnnPlan* kept_plan(const Execution& x, Dnn& dnn, const std::string& key,
                   const std::function<void(DnnGraph&)>& build, const DnnAccepts& accepts,
                   std::size_t most_workspace);

/// Executes a plan: the address of each tensor by its number. False: there was not as much memory as it works
/// in, and nothing was done.
[[nodiscard]] bool execute_plan(const Execution& x, Dnn& dnn, const DnnPlan& plan,
                                const std::map<std::int64_t, std::uint64_t>& addresses);

}  // namespace gpupool::worker
