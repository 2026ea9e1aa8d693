// Operations that are right: small ones of every kind, from which fuzzing starts.
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "fuzz/operation_bytes.h"
#include "fuzz/seed_folder.h"
#include "libraries/operations/all.h"

namespace gpupool::fuzz::seeds {
namespace {

using namespace operations;

constexpr std::uint64_t place = address_mark + 256;

Tensor tensor(std::initializer_list<std::int64_t> sizes) {
  Tensor made;
  made.address = place;
  made.dims = static_cast<std::uint8_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), made.sizes);
  std::int64_t next = 1;
  for (int i = made.dims - 1; i >= 0; --i) {
    made.strides[i] = next;
    next *= made.sizes[i];
  }
  return made;
}
View view(std::int64_t rows) {
  View made;
  made.address = place;
  made.column = rows;
  return made;
}

/// Kinds of which an operation without any settings is of use.
template <class O>
void make(O&) {}

void make(Convolution& op) {
  op.input = tensor({2, 4, 1, 5, 5});
  op.filter = tensor({6, 2, 1, 3, 3});
  op.output = tensor({2, 6, 1, 3, 3});
  op.groups = 2;
}
void make(BatchNormalization& op) {
  op.x = op.y = op.dx = op.dy = tensor({2, 4, 1, 5, 5});
  op.parameters = tensor({1, 4, 1, 1, 1});
  op.direction = NormalizationDirection::training;
  op.scale = op.bias = op.mean = op.variance = op.scale_gradient = op.bias_gradient = place;
}
void make(Pointwise& op) {
  op.a = op.b = op.c = op.target = tensor({2, 4, 5});
  op.combine = Combine::add;
}
void make(Reduction& op) {
  op.source = tensor({2, 4, 5});
  op.target = tensor({1, 4, 1});
}
void make(Softmax& op) {
  op.x = op.y = op.dy = tensor({2, 4, 5});
}
void make(Attention& op) {
  op.q = op.q_gradient = tensor({2, 4, 5, 8});
  op.k = op.k_gradient = tensor({2, 2, 6, 8});
  op.v = op.v_gradient = tensor({2, 2, 6, 4});
  op.o = op.o_gradient = tensor({2, 4, 5, 4});
  op.statistics = tensor({2, 4, 5, 1});
  op.bias = op.bias_gradient = tensor({1, 4, 5, 6});
  op.q_lengths.address = op.k_lengths.address = place;
  op.left.set = op.right.set = op.pads = op.backward = true;
  op.seed = {place, true, true, {}};
  op.rate = 0.25;
}
void make(CtcLoss& op) {
  op.probabilities = op.gradient = tensor({5, 2, 4});
  op.labels = op.label_lengths = op.step_lengths = place;  // zeros
  op.losses = place + 1024;
}
void make(Rnn& op) {
  op.shape.steps = op.shape.batch = op.shape.layers = op.shape.directions = 2;
  op.shape.input = op.shape.hidden = 3;
  op.shape.projection = 2;
  op.shape.cell = Cell::lstm;
  op.x.address = op.x.gradient = op.y.address = op.y.gradient = place;
  op.h = op.c = {place, place, place, place};
  op.weights = op.weights_gradient = place + 1024;
  op.reserve = place + 4096;
  op.workspace = place + 16384;
  op.pass = RnnPass::backward_data;
}
void make(Pooling& op) {
  op.x = op.dx = tensor({2, 4, 1, 5, 5});
  op.y = op.dy = tensor({2, 4, 1, 3, 3});
  op.window[1] = op.window[2] = 3;
}
void make(ResponseNormalization& op) {
  op.x = op.y = op.dy = op.dx = tensor({2, 4, 1, 5, 5});
  op.backward = true;
}
void make(SpatialTransformer& op) {
  op.x = op.dx = tensor({2, 3, 4, 5});
  op.y = tensor({2, 3, 6, 7});
  op.grid = op.grid_gradient = place;
  op.images = 2;
  op.height = 6;
  op.width = 7;
  op.what = Transforming::sample_gradient;
}
void make(Bands& op) {
  for (std::uint64_t& diagonal : op.diagonals) diagonal = place;
  op.b = place + 1024;
  op.m = 8;
  op.batch = 3;
  op.how = Banded::interleaved;
}
void make(Gemm& op) {
  op.m = op.n = op.k = 8;
  for (Matrix* const matrix : {&op.a, &op.b, &op.c, &op.d}) {
    matrix->address = place;
    matrix->leading = 8;
  }
  op.scale_a = op.scale_b = op.largest_d = place + 1024;
  op.epilogue = epilogue_gelu_gradient | epilogue_auxiliary | epilogue_bias_gradient;
  op.auxiliary.address = op.bias = place + 2048;
  op.auxiliary.leading = 8;
}
void make(Product& op) {
  op.a = op.b = op.c = view(8);
  op.m = op.n = op.k = 8;
}
void make(Solve& op) {
  op.a = op.b = view(8);
  op.a.below = 0;
  op.m = op.n = 8;
}
void make(Entrywise& op) {
  op.a = op.b = op.c = view(8);
  op.m = op.n = 8;
}
void make(Vectors& op) {
  op.x.address = op.y.address = place;
  op.n = 8;
}
void make(Factors& op) {
  op.a = op.b = op.pivots = op.info = place;
  op.m = op.n = op.lda = op.ldb = 4;
  op.batch = 1;
}
void make(Fft& op) {
  op.input = op.output = place;
  op.length = 12;
}
void make(Random& op) {
  op.output = place;
  op.count = 100;
}

template <class... O>
void all(All<O...>) {
  std::uint8_t number = 0;
  const auto write_one = [&]<class Operation>(Operation operation) {
    make(operation);
    std::vector<std::byte> bytes(2 + sizeof operation);
    bytes[0] = static_cast<std::byte>(number++);
    std::memcpy(bytes.data() + 2, &operation, sizeof operation);
    write("operations", Operation::name, bytes);
  };
  (write_one(O{}), ...);
}

}  // namespace

void library_operations() {
  all(all_operations);
}

}  // namespace gpupool::fuzz::seeds
