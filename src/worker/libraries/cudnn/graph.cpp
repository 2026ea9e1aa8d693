#include "worker/libraries/cudnn/graph.h"

#include <algorithm>
#include <initializer_list>
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
std::int64_t alignment_of(std::uint64_t address, std::int64_t most) {
  if (address == 0) return most;
  return static_cast<std::int64_t>(std::min(address & ~(address - 1), static_cast<std::uint64_t>(most)));
}

/// A descriptor that ends with this, unless it is taken. The first call that fails says what came of all.
class BackendDescriptor {
 public:
  BackendDescriptor(Library& cudnn, int kind)
      : cudnn_(cudnn), status_(cudnn.call("cudnnBackendCreateDescriptor", kind, &descriptor_)) {}
  ~BackendDescriptor() {
    if (descriptor_ != nullptr) cudnn_.call("cudnnBackendDestroyDescriptor", descriptor_);
  }
  BackendDescriptor(const BackendDescriptor&) = delete;
  BackendDescriptor& operator=(const BackendDescriptor&) = delete;

  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] void* address() const { return descriptor_; }
  [[nodiscard]] void* take() { return std::exchange(descriptor_, nullptr); }

  void set(int name, int type, std::int64_t count, const void* elements) {
    if (status_ == 0)
      status_ = cudnn_.call("cudnnBackendSetAttribute", descriptor_, name, type, count, elements);
  }
  void finish() {
    if (status_ == 0) status_ = cudnn_.call("cudnnBackendFinalize", descriptor_);
  }
  /// How many elements there are; the first `most` of them are told.
  std::int64_t get(int name, int type, std::int64_t most, void* elements) {
    std::int64_t count = 0;
    if (status_ == 0)
      status_ = cudnn_.call("cudnnBackendGetAttribute", descriptor_, name, type, most, &count, elements);
    return status_ == 0 ? std::max<std::int64_t>(0, count) : 0;
  }
  /// The only element of a descriptor's attribute: what this is from now on.
  void be_of(void* descriptor, int name) {
    std::int64_t count = 0;
    if (status_ == 0)
      status_ = cudnn_.call("cudnnBackendGetAttribute", descriptor, name, is_descriptor, std::int64_t{1},
                            &count, static_cast<void*>(&descriptor_));
  }

 private:
  Library& cudnn_;
  void* descriptor_ = nullptr;  // before what makes it
  int status_;
};

}  // namespace

DnnGraph::~DnnGraph() {
  for (auto made = descriptors_.rbegin(); made != descriptors_.rend(); ++made)
    x_.libraries.cudnn.call("cudnnBackendDestroyDescriptor", *made);
}

void* DnnGraph::create(int kind) {
  void* made = nullptr;
  dnn_.describe("cudnnBackendCreateDescriptor", kind, &made);
  if (dnn_.good()) descriptors_.push_back(made);
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
                        int type, Place place, std::int64_t alignment) {
  DnnValue value;
  std::copy(sizes, sizes + 4, value.sizes);
  std::copy(strides, strides + 4, value.strides);
  value.descriptor = described(id, sizes, strides, type, alignment, place);
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
  return made(id, sizes, strides, type, Place::memory, alignment_of(tensor.address, usual_alignment));
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
  constexpr std::int64_t most = 32;
  return described(id, sizes, strides, type, alignment_of(tensor.address, most), Place::memory);
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

std::vector<void*> DnnGraph::configurations(void* graph, int mode, int& status) {
  BackendDescriptor heuristic(x_.libraries.cudnn, kind_heuristic);
  heuristic.set(201, is_descriptor, 1, &graph);
  heuristic.set(200, is_heuristic, 1, &mode);
  heuristic.finish();
  constexpr std::int64_t most = 64;
  const std::int64_t count = std::min(heuristic.get(202, is_descriptor, 0, nullptr), most);
  std::vector<void*> found;
  for (std::int64_t i = 0; i < count; ++i) found.push_back(create(kind_config));
  if (!dnn_.good()) return {};
  if (count > 0) {
    const std::int64_t told = heuristic.get(202, is_descriptor, count, found.data());
    found.resize(static_cast<std::size_t>(std::min(told, count)));
  }
  if (heuristic.status() != 0) status = heuristic.status();
  return found;
}

std::optional<std::vector<int>> DnnGraph::notes_of(void* configuration) {
  BackendDescriptor engine(x_.libraries.cudnn, kind_engine);
  engine.be_of(configuration, 300);
  constexpr std::int64_t most = 10;  // CUDNN_NUMERICAL_NOTE_TYPE_COUNT
  std::vector<int> notes(most);
  const std::int64_t count = engine.get(1303, is_note, most, notes.data());
  if (engine.status() != 0) return std::nullopt;
  notes.resize(static_cast<std::size_t>(std::min(count, most)));
  return notes;
}

int DnnGraph::try_configuration(void* configuration) {
  Library& cudnn = x_.libraries.cudnn;
  void* const handle = x_.state.cudnn;
  BackendDescriptor plan(cudnn, kind_plan);
  plan.set(400, is_handle, 1, &handle);
  plan.set(401, is_descriptor, 1, &configuration);
  plan.finish();  // which engines can be had is known only now
  std::int64_t bytes = 0;
  plan.get(402, is_int64, 1, &bytes);
  if (plan.status() != 0) return plan.status();
  const auto workspace = static_cast<std::size_t>(std::max<std::int64_t>(0, bytes));
  if (into_.plan != nullptr && workspace >= into_.workspace) return 0;
  end_plan(cudnn, into_);
  into_.plan = plan.take();
  into_.configuration = configuration;
  into_.workspace = workspace;
  std::erase(descriptors_, configuration);
  return 0;
}

void DnnGraph::plan(const DnnAccepts& accepts) {
  void* const handle = x_.state.cudnn;
  void* const graph = create(kind_graph);
  set(graph, 800, is_handle, 1, &handle);
  set(graph, 801, is_descriptor, static_cast<std::int64_t>(operations_.size()), operations_.data());
  finish(graph);
  constexpr int by_shape = 3, last_resort = 2;  // CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK
  // What is said when there is none. Anything that may pass is said rather than that it cannot be.
  int said = Dnn::not_supported;
  const auto note = [&](int status) {
    if (status != 0 && Dnn::lasts(said)) said = status;
  };
  for (const int mode : {by_shape, last_resort}) {
    if (!dnn_.good() || has_plan()) return;
    int status = 0;
    for (void* const configuration : configurations(graph, mode, status)) {
      if (accepts) {
        const auto notes = notes_of(configuration);
        if (!notes || !accepts(*notes)) continue;
      }
      note(try_configuration(configuration));
      if (has_plan()) return;
    }
    note(status);
  }
  if (into_.plan == nullptr) dnn_.fail(said);
}

DnnPlan* kept_plan(const Execution& x, Dnn& dnn, const std::string& key,
                   const std::function<void(DnnGraph&)>& build, const DnnAccepts& accepts,
                   std::size_t most_workspace) {
  constexpr std::size_t most = 4096;
  if (!dnn.good()) return nullptr;
  auto& plans = x.state.plans;
  auto known = plans.find(key);
  if (known == plans.end()) {
    const Preparation::Scope preparing(x.libraries.preparation);
    const auto end = [&](const DnnPlan& plan) { end_plan(x.libraries.cudnn, plan); };
    DnnPlan made;
    DnnGraph graph(x, dnn, made, most_workspace);
    build(graph);
    if (dnn.good()) graph.plan(accepts);
    if (!dnn.good()) {
      end(made);
      if (!Dnn::lasts(dnn.status())) return nullptr;
      made = {};
      made.status = dnn.status();
    }
    make_room(x, plans, most, end);
    known = plans.emplace(key, std::move(made)).first;
  }
  DnnPlan& plan = known->second;
  note_use(x, plan);
  dnn.fail(plan.status);
  return dnn.good() ? &plan : nullptr;
}

bool execute_plan(const Execution& x, Dnn& dnn, const DnnPlan& plan,
                  const std::map<std::int64_t, std::uint64_t>& addresses) {
  const Workspace work(x, plan.workspace);
  if (!work.there()) return false;
  std::vector<std::uint64_t> pointers;
  for (const std::int64_t id : plan.ids) {
    const auto found = addresses.find(id);
    pointers.push_back(found == addresses.end() ? 0 : found->second);
  }
  void* const place = work.address();
  const auto count = static_cast<std::int64_t>(plan.ids.size());
  BackendDescriptor pack(x.libraries.cudnn, kind_pack);
  pack.set(1000, is_int64, count, plan.ids.data());
  pack.set(1001, is_pointer, count, pointers.data());
  pack.set(1003, is_pointer, 1, &place);
  pack.finish();
  dnn.fail(pack.status());
  dnn.call("cudnnBackendExecute", plan.plan, pack.address());
  return true;
}

void end_plan(Library& cudnn, const DnnPlan& plan) {
  for (void* const made : {plan.plan, plan.configuration}) {
    if (made != nullptr) cudnn.call("cudnnBackendDestroyDescriptor", made);
  }
}

}  // namespace gpupool::worker
