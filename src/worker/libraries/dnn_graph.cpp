#include "worker/libraries/dnn_graph.h"

#include <algorithm>

namespace gpupool::worker {
namespace {

// cudnnBackendDescriptorType_t.
constexpr int kind_pointwise = 0, kind_config = 3, kind_heuristic = 4, kind_plan = 5,
              kind_operation_pointwise = 13, kind_graph = 15, kind_pack = 16, kind_tensor = 17,
              kind_matmul = 18, kind_operation_matmul = 19, kind_reduction = 21,
              kind_operation_reduction = 22, kind_reshape = 31, kind_random = 32, kind_operation_random = 33;
// cudnnBackendAttributeType_t.
constexpr int is_handle = 0, is_data_type = 1, is_boolean = 2, is_int64 = 3, is_double = 5, is_pointer = 6,
              is_heuristic = 8, is_pointwise = 14, is_descriptor = 15, is_reduction = 18,
              is_distribution = 29;

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

DnnValue DnnGraph::made(std::int64_t id, const std::int64_t (&sizes)[4], const std::int64_t (&strides)[4],
                        int type, bool is_virtual, bool by_value) {
  DnnValue value;
  std::copy(sizes, sizes + 4, value.sizes);
  std::copy(strides, strides + 4, value.strides);
  value.descriptor = create(kind_tensor);
  const std::uint8_t yes = 1;
  set_enum(value.descriptor, 901, is_data_type, type);
  set(value.descriptor, 902, is_int64, 4, sizes);
  set(value.descriptor, 903, is_int64, 4, strides);
  set(value.descriptor, 906, is_int64, id);
  set(value.descriptor, 900, is_int64, 16);  // its alignment
  if (is_virtual) set(value.descriptor, 907, is_boolean, 1, &yes);
  if (by_value) set(value.descriptor, 908, is_boolean, 1, &yes);
  finish(value.descriptor);
  if (!is_virtual) into_.ids.push_back(id);
  return value;
}

DnnValue DnnGraph::between(const std::int64_t (&sizes)[4], int type) {
  const std::int64_t strides[4] = {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
  return made(next_++, sizes, strides, type, true, false);
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
  return made(id, sizes, strides, type, false, false);
}
DnnValue DnnGraph::placed(std::int64_t id, const std::int64_t (&sizes)[4], int type) {
  const std::int64_t strides[4] = {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
  return made(id, sizes, strides, type, false, false);
}
DnnValue DnnGraph::number(std::int64_t id, int type, bool by_value) {
  return made(id, {1, 1, 1, 1}, {1, 1, 1, 1}, type, false, by_value);
}
DnnValue DnnGraph::lengths(std::int64_t id, std::int64_t images, std::int64_t stride, bool wide) {
  return made(id, {images, 1, 1, 1}, {std::max<std::int64_t>(1, stride), 1, 1, 1}, wide ? whole_64 : whole,
              false, false);
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
                          {x.strides[0], x.strides[1], x.strides[3], x.strides[2]}, type, true, false);
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

void DnnGraph::plan() {
  void* const handle = x_.state.cudnn;
  void* const graph = create(kind_graph);
  set(graph, 800, is_handle, 1, &handle);
  set(graph, 801, is_descriptor, static_cast<std::int64_t>(operations_.size()), operations_.data());
  finish(graph);
  void* const heuristic = create(kind_heuristic);
  constexpr int by_shape = 3;  // CUDNN_HEUR_MODE_A
  set_descriptor(heuristic, 201, graph);
  set_enum(heuristic, 200, is_heuristic, by_shape);
  finish(heuristic);
  constexpr std::int64_t most = 8;
  void* configs[most] = {};
  for (void*& config : configs) config = create(kind_config);
  std::int64_t found = 0;
  dnn_.describe("cudnnBackendGetAttribute", heuristic, 202, is_descriptor, most, &found,
                static_cast<void*>(configs));
  if (!dnn_.good()) return;
  // The first one that can be had.
  Library& cudnn = x_.libraries.cudnn;
  int status = Dnn::not_supported;
  for (std::int64_t i = 0; i < std::min(found, most) && status != 0; ++i) {
    void* const plan = create(kind_plan);
    set(plan, 400, is_handle, 1, &handle);
    set_descriptor(plan, 401, configs[i]);
    if (!dnn_.good()) return;
    status = cudnn.call("cudnnBackendFinalize", plan);
    std::int64_t bytes = 0, count = 0;
    if (status == 0)
      status = cudnn.call("cudnnBackendGetAttribute", plan, 402, is_int64, std::int64_t{1}, &count,
                          static_cast<void*>(&bytes));
    if (status == 0) {
      into_.plan = plan;
      into_.workspace = static_cast<std::size_t>(std::max<std::int64_t>(0, bytes));
    }
  }
  if (status != 0) dnn_.fail(status);
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
