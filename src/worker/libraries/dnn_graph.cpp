#include "worker/libraries/dnn_graph.h"

#include <algorithm>
#include <utility>

namespace gpupool::worker {
namespace {

// cudnnBackendDescriptorType_t.
constexpr int kind_pointwise = 0, kind_convolution = 1, kind_engine = 2, kind_config = 3, kind_heuristic = 4,
              kind_plan = 5, kind_forward = 10, kind_backward_filter = 11, kind_backward_data = 12,
              kind_operation_pointwise = 13, kind_graph = 15, kind_pack = 16, kind_tensor = 17,
              kind_matmul = 18, kind_operation_matmul = 19, kind_reduction = 21,
              kind_operation_reduction = 22, kind_reshape = 31, kind_random = 32, kind_operation_random = 33;
// cudnnBackendAttributeType_t.
constexpr int is_handle = 0, is_data_type = 1, is_boolean = 2, is_int64 = 3, is_float = 4, is_double = 5,
              is_pointer = 6, is_convolution_mode = 7, is_heuristic = 8, is_note = 11, is_pointwise = 14,
              is_descriptor = 15, is_reduction = 18, is_distribution = 29;

/// What an address is a multiple of, as far as the library wants to know.
std::int64_t alignment_of(std::uint64_t address) {
  constexpr std::uint64_t most = 32;
  if (address == 0) return most;
  return static_cast<std::int64_t>(std::min(address & ~(address - 1), most));
}

}  // namespace

void* DnnGraph::create(int kind) {
  void* made = nullptr;
  dnn_.describe("cudnnBackendCreateDescriptor", kind, &made);
  if (dnn_.good()) into_.descriptors.push_back(made);
  return made;
}

void DnnGraph::set(void* descriptor, int name, int type, std::int64_t count, const void* elements) {
  dnn_.describe("cudnnBackendSetAttribute", descriptor, name, type, count, elements);
}
void DnnGraph::set_descriptor(void* descriptor, int name, void* value) {
  set(descriptor, name, is_descriptor, 1, &value);
}

void* DnnGraph::described(std::int64_t id, std::span<const std::int64_t> sizes,
                          std::span<const std::int64_t> strides, int type, std::int64_t alignment,
                          Place place) {
  void* const tensor = create(kind_tensor);
  const std::uint8_t yes = 1;
  set_enum(tensor, 901, is_data_type, type);
  set(tensor, 902, is_int64, static_cast<std::int64_t>(sizes.size()), sizes.data());
  set(tensor, 903, is_int64, static_cast<std::int64_t>(strides.size()), strides.data());
  set(tensor, 906, is_int64, id);
  set(tensor, 900, is_int64, alignment);
  if (place == Place::nowhere) set(tensor, 907, is_boolean, 1, &yes);
  if (place == Place::given) set(tensor, 908, is_boolean, 1, &yes);
  finish(tensor);
  if (place != Place::nowhere) into_.ids.push_back(id);
  return tensor;
}
DnnValue DnnGraph::made(std::int64_t id, const std::int64_t (&sizes)[4], const std::int64_t (&strides)[4],
                        int type, Place place) {
  constexpr std::int64_t aligned = 16;
  DnnValue value;
  std::copy(sizes, sizes + 4, value.sizes);
  std::copy(strides, strides + 4, value.strides);
  value.descriptor = described(id, sizes, strides, type, aligned, place);
  return value;
}

DnnValue DnnGraph::between(const std::int64_t (&sizes)[4], int type) {
  const std::int64_t strides[4] = {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
  return made(next_++, sizes, strides, type, Place::nowhere);
}

DnnValue DnnGraph::tensor(std::int64_t id, const operations::Tensor& tensor, bool turned) {
  std::int64_t sizes[4], strides[4];
  for (int i = 0; i < 4; ++i) {
    const int from = turned && i >= 2 ? 5 - i : i;
    sizes[i] = tensor.sizes[from];
    strides[i] = tensor.strides[from];
  }
  const int type = data_type_of(tensor.type);
  if (type < 0) dnn_.fail(Dnn::not_supported);
  return made(id, sizes, strides, type, Place::memory);
}
DnnValue DnnGraph::placed(std::int64_t id, const std::int64_t (&sizes)[4], int type) {
  const std::int64_t strides[4] = {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
  return made(id, sizes, strides, type, Place::memory);
}
DnnValue DnnGraph::number(std::int64_t id, int type, bool by_value) {
  return made(id, {1, 1, 1, 1}, {1, 1, 1, 1}, type, by_value ? Place::given : Place::memory);
}
DnnValue DnnGraph::lengths(std::int64_t id, std::int64_t images, std::int64_t stride, bool wide) {
  return made(id, {images, 1, 1, 1}, {std::max<std::int64_t>(1, stride), 1, 1, 1}, wide ? whole_64 : whole,
              Place::memory);
}

void DnnGraph::node(void* operation) {
  finish(operation);
  operations_.push_back(operation);
}

DnnValue DnnGraph::point(Mode mode, const DnnValue& x, const DnnValue* b, const DnnValue* t, int axis) {
  // Places of numbers are whole ones, and what compares them says yes or no.
  const int type = mode == index ? whole : mode >= greater && mode <= both ? boolean : single;
  const DnnValue y = between(x.sizes, type);
  // Places are computed as numbers, and stored as whole ones.
  point_into(mode, x, b, t, y, axis, mode == index ? single : type);
  return y;
}
DnnValue DnnGraph::point_as(int type, Mode mode, const DnnValue& x, const DnnValue& b) {
  const DnnValue y = between(x.sizes, type);
  point_into(mode, x, &b, nullptr, y);
  return y;
}
void DnnGraph::point_into(Mode mode, const DnnValue& x, const DnnValue* b, const DnnValue* t,
                          const DnnValue& y, int axis, int type) {
  void* const how = create(kind_pointwise);
  set_enum(how, 0, is_pointwise, mode);
  set_enum(how, 1, is_data_type, type);
  if (axis >= 0) set(how, 9, is_int64, axis);
  finish(how);
  void* const made = create(kind_operation_pointwise);
  set_descriptor(made, 750, how);
  set_descriptor(made, 751, x.descriptor);
  if (b != nullptr) set_descriptor(made, 752, b->descriptor);
  if (t != nullptr) set_descriptor(made, 758, t->descriptor);
  set_descriptor(made, 753, y.descriptor);
  node(made);
}

DnnValue DnnGraph::product(const DnnValue& a, const DnnValue& b) {
  const DnnValue c = between({a.sizes[0], a.sizes[1], a.sizes[2], b.sizes[3]});
  product_into(a, b, c);
  return c;
}
void DnnGraph::product_into(const DnnValue& a, const DnnValue& b, const DnnValue& c) {
  void* const how = create(kind_matmul);
  set_enum(how, 1500, is_data_type, single);
  finish(how);
  void* const made = create(kind_operation_matmul);
  set_descriptor(made, 1520, a.descriptor);
  set_descriptor(made, 1521, b.descriptor);
  set_descriptor(made, 1522, c.descriptor);
  set_descriptor(made, 1523, how);
  node(made);
}

DnnValue DnnGraph::reduce(Reduction what, const DnnValue& x) {
  const DnnValue y = between({x.sizes[0], x.sizes[1], x.sizes[2], 1});
  reduce_into(what, x, y);
  return y;
}
void DnnGraph::reduce_into(Reduction what, const DnnValue& x, const DnnValue& y) {
  void* const how = create(kind_reduction);
  set_enum(how, 1600, is_reduction, what);
  set_enum(how, 1601, is_data_type, single);
  finish(how);
  void* const made = create(kind_operation_reduction);
  set_descriptor(made, 1610, x.descriptor);
  set_descriptor(made, 1611, y.descriptor);
  set_descriptor(made, 1612, how);
  node(made);
}

DnnValue DnnGraph::turn(const DnnValue& x, int type) {
  const DnnValue y = made(next_++, {x.sizes[0], x.sizes[1], x.sizes[3], x.sizes[2]},
                          {x.strides[0], x.strides[1], x.strides[3], x.strides[2]}, type, Place::nowhere);
  void* const made = create(kind_reshape);
  set_descriptor(made, 2200, x.descriptor);
  set_descriptor(made, 2201, y.descriptor);
  node(made);
  return y;
}

DnnValue DnnGraph::random(double kept, const DnnValue& seed, const DnnValue& offset,
                          const std::int64_t (&sizes)[4]) {
  constexpr int bernoulli = 0;
  const DnnValue y = between(sizes);
  void* const how = create(kind_random);
  set_enum(how, 2300, is_distribution, bernoulli);
  set(how, 2305, is_double, 1, &kept);
  finish(how);
  void* const made = create(kind_operation_random);
  set_descriptor(made, 2310, y.descriptor);
  set_descriptor(made, 2312, how);
  set_descriptor(made, 2311, seed.descriptor);
  set_descriptor(made, 2313, offset.descriptor);
  node(made);
  return y;
}

void* DnnGraph::operand(std::int64_t id, const operations::Tensor& tensor, int dims) {
  std::vector<std::int64_t> sizes, strides;
  for (int i = 0; i < tensor.dims; ++i) {
    if (i >= 2 && i < tensor.dims - (dims - 2)) continue;
    sizes.push_back(tensor.sizes[i]);
    strides.push_back(tensor.strides[i]);
  }
  const int type = data_type_of(tensor.type);
  if (type < 0) dnn_.fail(Dnn::not_supported);
  return described(id, sizes, strides, type, alignment_of(tensor.address), Place::memory);
}

void DnnGraph::convolve(const DnnConvolution& how) {
  constexpr int cross_correlation = 1, wide = 1;
  const int computed = how.wide ? wide : single;
  const auto space = static_cast<std::int64_t>(how.padding.size());
  void* const convolution = create(kind_convolution);
  set_enum(convolution, 100, is_data_type, computed);
  set_enum(convolution, 101, is_convolution_mode, how.flipped ? 0 : cross_correlation);
  set(convolution, 106, is_int64, space);  // before what has so many numbers
  set(convolution, 105, is_int64, space, how.padding.data());
  set(convolution, 104, is_int64, space, how.padding.data());  // behind the last element
  set(convolution, 102, is_int64, space, how.dilation.data());
  set(convolution, 103, is_int64, space, how.stride.data());
  finish(convolution);
  // The attributes of the three directions have the same order.
  const auto [kind, first] = [&]() -> std::pair<int, int> {
    switch (how.direction) {
      case operations::ConvolutionDirection::backward_data:
        return {kind_backward_data, 706};
      case operations::ConvolutionDirection::backward_filter:
        return {kind_backward_filter, 712};
      default:
        return {kind_forward, 700};
    }
  }();
  void* const made = create(kind);
  const auto factor = [&](int name, double value) {
    const auto narrow = static_cast<float>(value);
    set(made, name, how.wide ? is_double : is_float, 1,
        how.wide ? static_cast<const void*>(&value) : static_cast<const void*>(&narrow));
  };
  factor(first, how.alpha);
  factor(first + 1, how.beta);
  set_descriptor(made, first + 2, convolution);
  set_descriptor(made, first + 3, how.filter);
  set_descriptor(made, first + 4, how.input);
  set_descriptor(made, first + 5, how.output);
  node(made);
}

std::vector<void*> DnnGraph::configurations(void* graph, int mode) {
  void* const heuristic = create(kind_heuristic);
  set_descriptor(heuristic, 201, graph);
  set_enum(heuristic, 200, is_heuristic, mode);
  finish(heuristic);
  constexpr std::int64_t most = 16;
  std::vector<void*> found(most);
  for (void*& configuration : found) configuration = create(kind_config);
  if (!dnn_.good()) return {};
  // A heuristic that knows none says that it failed.
  std::int64_t count = 0;
  const int status = x_.libraries.cudnn.call("cudnnBackendGetAttribute", heuristic, 202, is_descriptor, most,
                                             &count, static_cast<void*>(found.data()));
  found.resize(status == 0 ? static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, most)) : 0);
  return found;
}

std::vector<int> DnnGraph::notes_of(void* configuration) {
  void* engine = create(kind_engine);
  std::int64_t count = 0;
  dnn_.describe("cudnnBackendGetAttribute", configuration, 300, is_descriptor, std::int64_t{1}, &count,
                static_cast<void*>(&engine));
  constexpr std::int64_t most = 10;  // CUDNN_NUMERICAL_NOTE_TYPE_COUNT
  std::vector<int> notes(most);
  dnn_.describe("cudnnBackendGetAttribute", engine, 1303, is_note, most, &count,
                static_cast<void*>(notes.data()));
  notes.resize(dnn_.good() ? static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, most)) : 0);
  return notes;
}

void DnnGraph::plan(const DnnAccepts& accepts) {
  void* const handle = x_.state.cudnn;
  void* const graph = create(kind_graph);
  set(graph, 800, is_handle, 1, &handle);
  set(graph, 801, is_descriptor, static_cast<std::int64_t>(operations_.size()), operations_.data());
  finish(graph);
  constexpr int by_shape = 3, last_resort = 2;  // CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK
  Library& cudnn = x_.libraries.cudnn;
  int status = Dnn::not_supported;
  for (const int mode : {by_shape, last_resort}) {
    for (void* const configuration : configurations(graph, mode)) {
      if (accepts && !accepts(notes_of(configuration))) continue;
      void* const plan = create(kind_plan);
      set(plan, 400, is_handle, 1, &handle);
      set_descriptor(plan, 401, configuration);
      if (!dnn_.good()) return;
      // Which engines can be had is known only now.
      std::int64_t bytes = 0, count = 0;
      int bad = cudnn.call("cudnnBackendFinalize", plan);
      if (bad == 0)
        bad = cudnn.call("cudnnBackendGetAttribute", plan, 402, is_int64, std::int64_t{1}, &count,
                         static_cast<void*>(&bytes));
      if (bad != 0) {
        if (into_.plan == nullptr) status = bad;
        continue;
      }
      const auto workspace = static_cast<std::size_t>(std::max<std::int64_t>(0, bytes));
      if (into_.plan != nullptr && workspace >= into_.workspace) continue;
      into_.plan = plan;
      into_.workspace = workspace;
      if (workspace <= Workspace::most_bytes) return;
    }
    if (into_.plan != nullptr || !dnn_.good()) return;
  }
  dnn_.fail(status);
}

const DnnPlan* kept_plan(const Execution& x, Dnn& dnn, const std::string& key,
                         const std::function<void(DnnGraph&)>& build, const DnnAccepts& accepts) {
  constexpr std::size_t most = 512;
  auto& plans = x.state.plans;
  const auto known = plans.find(key);
  if (known != plans.end()) {
    dnn.fail(known->second.status);
    return known->second.plan == nullptr ? nullptr : &known->second;
  }
  DnnPlan made;
  DnnGraph graph(x, dnn, made);
  build(graph);
  if (dnn.good()) graph.plan(accepts);
  if (!dnn.good()) {
    end_plan(x.libraries.cudnn, made);
    if (result_of_cudnn(dnn.status()) == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;  // another time it may do
    made = {};
    made.status = dnn.status();
  }
  if (plans.size() >= most) {
    // They may still be at work.
    static_cast<void>(x.libraries.api.cuCtxSynchronize_());
    for (const auto& [old_key, old] : plans) end_plan(x.libraries.cudnn, old);
    plans.clear();
  }
  const DnnPlan& kept = plans.emplace(key, std::move(made)).first->second;
  return kept.plan == nullptr ? nullptr : &kept;
}

void execute_plan(const Execution& x, Dnn& dnn, const DnnPlan& plan,
                  const std::map<std::int64_t, std::uint64_t>& addresses) {
  const Workspace work(x.libraries.api, x.stream, plan.workspace);
  if (!work.there()) return dnn.fail(Dnn::no_memory);
  std::vector<std::uint64_t> pointers;
  for (const std::int64_t id : plan.ids) {
    const auto found = addresses.find(id);
    pointers.push_back(found == addresses.end() ? 0 : found->second);
  }
  void *pack = nullptr, *place = work.address();
  dnn.describe("cudnnBackendCreateDescriptor", kind_pack, &pack);
  if (!dnn.good()) return;
  const auto set = [&](int name, int type, std::size_t count, const void* elements) {
    dnn.describe("cudnnBackendSetAttribute", pack, name, type, static_cast<std::int64_t>(count), elements);
  };
  set(1000, is_int64, plan.ids.size(), plan.ids.data());
  set(1001, is_pointer, pointers.size(), pointers.data());
  set(1003, is_pointer, 1, &place);
  dnn.describe("cudnnBackendFinalize", pack);
  dnn.call("cudnnBackendExecute", plan.plan, pack);
  x.libraries.cudnn.call("cudnnBackendDestroyDescriptor", pack);
}

void end_plan(Library& cudnn, const DnnPlan& plan) {
  for (auto made = plan.descriptors.rbegin(); made != plan.descriptors.rend(); ++made)
    cudnn.call("cudnnBackendDestroyDescriptor", *made);
}

}  // namespace gpupool::worker
