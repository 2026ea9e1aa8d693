// An operation that is right but for a few of its bytes computes inside its memory or ends with a fault.
// Random bytes alone seldom get past the shapes of tensors and matrices.
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <random>
#include <vector>

#include "libraries/operations/all.h"
#include "softgpu/libraries/execute.h"

using namespace softgpu::libraries;
using namespace gpupool::operations;

namespace {

constexpr std::size_t arena_bytes = 1 << 16;
constexpr std::uint32_t epilogues[] = {
    epilogue_none,
    epilogue_sums_a,
    epilogue_sums_b,
    epilogue_relu | epilogue_auxiliary,
    epilogue_gelu | epilogue_auxiliary | epilogue_bias,
    epilogue_relu_gradient | epilogue_auxiliary,
    epilogue_gelu_gradient | epilogue_auxiliary | epilogue_bias_gradient,
};

class Right {
 public:
  explicit Right(std::mt19937& random) : random_(random), bytes_(arena_bytes) {}

  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(bytes_.data()); }
  /// Of one launch: what it has prepared is not for another.
  [[nodiscard]] Memory memory() const {
    return Memory([this](std::uint64_t at, std::size_t count) {
      return at >= address() && count <= arena_bytes && at - address() <= arena_bytes - count;
    });
  }

  void make(Convolution& op) const {
    op.input = tensor({2, 4, 1, 5, 5});
    op.filter = tensor({6, 2, 1, 3, 3});
    op.output = tensor({2, 6, 1, 3, 3});
    op.groups = 2;
    op.direction = static_cast<ConvolutionDirection>(random_() % 3);
    if (random_() % 2 == 0) return;
    op.added = op.target();
    op.beta = 1;
  }
  void make(Pointwise& op) const {
    op.a = op.b = op.c = op.target = tensor({2, 4, 1, 5, 5});
    op.combine = static_cast<Combine>(random_() % 10);
  }
  void make(Reduction& op) const {
    op.source = tensor({2, 4, 1, 5, 5});
    op.target = tensor({1, 4, 1, 1, 1});
    op.operation = static_cast<Reduce>(random_() % 9);
  }
  void make(BatchNormalization& op) const {
    op.x = op.y = op.dx = op.dy = tensor({2, 4, 1, 5, 5});
    op.parameters = tensor({1, 4, 1, 1, 1});
    op.direction = static_cast<NormalizationDirection>(random_() % 3);
    op.scale = op.bias = op.mean = op.variance = op.scale_gradient = op.bias_gradient = address();
  }
  void make(Softmax& op) const {
    op.x = op.y = op.dy = tensor({2, 4, 1, 5, 5});
    op.backward = random_() % 2 == 0;
  }
  void make(Decomposition& op) const {
    constexpr std::int64_t order = 6;
    op.what = static_cast<Decomposing>(random_() % (static_cast<unsigned>(last_decomposing) + 1));
    op.type = std::array{Element::f32, Element::f64, Element::c32, Element::c64}[random_() % 4];
    op.m = op.n = op.k = op.columns = order;
    op.batch = 2;
    // Each operand has its own kilobytes.
    std::uint64_t next = address();
    for (auto* const placed : {&op.a, &op.b, &op.c, &op.values, &op.beside, &op.tau, &op.tau_right}) {
      placed->address = next;
      placed->leading = order;
      placed->stride = order * order;
      next += 4096;
    }
    op.pivots = next;
    op.info = next + 1024;
    op.upper = random_() % 2;
    op.vectors = op.left_vectors = random_() % 2;
    op.left = op.right_ones = static_cast<Wanted>(random_() % 3);
    if (op.what == Decomposing::exchange) op.k = op.m = 1;
    for (int i = 0; i < order * 2; ++i) pivots()[i] = i % order + 1;
  }
  void make(Pooling& op) const {
    op.x = op.dx = tensor({2, 4, 1, 5, 5});
    op.y = op.dy = tensor({2, 4, 1, 3, 3});
    op.window[1] = op.window[2] = 3;
    op.backward = random_() % 2 == 0;
  }
  void make(ResponseNormalization& op) const {
    op.x = op.y = op.dy = op.dx = tensor({2, 4, 1, 5, 5});
    op.backward = random_() % 2 == 0;
  }
  void make(SpatialTransformer& op) const {
    op.x = op.dx = tensor({2, 3, 4, 5});
    op.y = tensor({2, 3, 6, 7});
    op.grid = op.grid_gradient = op.theta = address() + 4096;
    op.images = 2;
    op.height = 6;
    op.width = 7;
    op.what = static_cast<Transforming>(random_() % 4);
  }
  void make(Dropout& op) const {
    op.from = op.into = tensor({2, 4, 1, 5, 5});
    op.states = op.mask = address();
    op.rate = 0.5;
    op.what = static_cast<Dropping>(random_() % 3);
  }
  void make(Rnn& op) const {
    op.shape.steps = 3;
    op.shape.batch = op.shape.input = 2;
    op.shape.hidden = 4;
    op.shape.layers = op.shape.directions = 2;
    op.shape.cell = static_cast<Cell>(random_() % 4);
    op.shape.bias = static_cast<RnnBias>(random_() % 4);
    op.shape.drops = random_() % 2 == 0;
    op.pass = static_cast<RnnPass>(random_() % 4);
    op.x.layout = op.y.layout = static_cast<SequenceLayout>(random_() % 3);
    op.x.address = op.y.address = op.x.gradient = op.y.gradient = op.weights = op.weights_gradient =
        op.reserve = op.workspace = op.h.first = op.h.last = op.states = address();
    op.rate = 0.5;
    op.lengths_given = random_() % 2 == 0;
    op.lengths[0] = 3;
    op.lengths[1] = 1;
  }
  void make(Attention& op) const {
    op.q = op.q_gradient = tensor({2, 4, 5, 8});
    op.k = op.k_gradient = tensor({2, 2, 6, 8});
    op.v = op.v_gradient = tensor({2, 2, 6, 4});
    op.o = op.o_gradient = tensor({2, 4, 5, 4});
    op.statistics = tensor({2, 4, 5, 1});
    op.bias = tensor({1, 4, 1, 6});
    op.bias_gradient = tensor({1, 4, 5, 6});
    op.q_lengths.address = op.k_lengths.address = address();
    op.q_lengths.stride = op.k_lengths.stride = 1;
    op.scale.value.words[0] = std::bit_cast<std::uint64_t>(0.5);
    op.left = {2, random_() % 2 == 0, random_() % 2 == 0, {}};
    op.right = {1, random_() % 2 == 0, random_() % 2 == 0, {}};
    op.rate = random_() % 2 == 0 ? 0.25 : 0;
    op.seed = {address(), random_() % 2 == 0, true, {}};
    op.pads = random_() % 2;
    op.backward = random_() % 2;
  }
  /// Of fp8 with a factor for each row or block.
  void make(Gemm& op) const {
    op.m = op.n = 8;
    op.k = 160;
    op.transpose_a = Transpose::transpose;
    op.a.type = Element::f8_e4m3;
    op.b.type = Element::f8_e5m2;
    op.d.type = random_() % 2 == 0 ? Element::f8_e4m3 : Element::f32;
    op.a.leading = op.b.leading = op.k;
    op.c.leading = op.d.leading = op.m;
    // Each operand has its own kilobytes.
    std::uint64_t next = address();
    for (std::uint64_t* const placed : {&op.a.address, &op.b.address, &op.c.address, &op.d.address,
                                        &op.scale_a, &op.scale_b, &op.auxiliary.address}) {
      *placed = next;
      next += 8192;
    }
    op.auxiliary.leading = 128;
    op.bias = next;
    op.epilogue = epilogues[random_() % std::size(epilogues)];
    op.scaling_a = static_cast<Scaling>(random_() % 6);
    op.scaling_b = static_cast<Scaling>(random_() % 6);
    op.alpha.words[0] = std::bit_cast<std::uint32_t>(1.0F);
    op.largest_d = random_() % 2 == 0 ? next + 4096 : 0;
  }
  void make(CtcLoss& op) const {
    op.probabilities = op.gradient = tensor({5, 2, 4});
    op.labels = address() + 4096;
    op.label_lengths = op.labels + 64;
    op.step_lengths = op.labels + 128;
    op.losses = op.labels + 192;
    op.softmax = random_() % 2;
    op.impossible = static_cast<Impossible>(random_() % 3);
    auto* const numbers = reinterpret_cast<std::int32_t*>(op.labels);
    for (int i = 0; i < 4; ++i) numbers[i] = i;
    numbers[16] = numbers[17] = 2;
    numbers[32] = numbers[33] = 5;
  }

 private:
  [[nodiscard]] std::int32_t* pivots() const { return reinterpret_cast<std::int32_t*>(address() + 7 * 4096); }
  [[nodiscard]] Tensor tensor(std::initializer_list<std::int64_t> sizes) const {
    Tensor made;
    made.address = address();
    made.dims = static_cast<std::uint8_t>(sizes.size());
    std::copy(sizes.begin(), sizes.end(), made.sizes);
    std::int64_t next = 1;
    for (int i = made.dims - 1; i >= 0; --i) {
      made.strides[i] = next;
      next *= made.sizes[i];
    }
    return made;
  }

  std::mt19937& random_;
  std::vector<std::byte> bytes_;
};

std::uint64_t word(std::mt19937& random, const Right& right) {
  switch (random() % 5) {
    case 0:
      return static_cast<std::uint64_t>(random()) << 32 | random();
    case 1:
      return static_cast<std::uint64_t>(-static_cast<std::int64_t>(random() % 4));
    case 2:
      return right.address() + random() % (arena_bytes / 8) * 8;
    case 3:
      return std::uint64_t{1} << random() % 64;
    default:
      return random() % 9;
  }
}

template <class O>
void try_changes(int times = 2000) {
  CAPTURE(O::name);
  std::mt19937 random(5);
  const Right right(random);
  int computed = 0, refused = 0;
  for (int n = 0; n < times; ++n) {
    O op;
    right.make(op);
    std::byte bytes[sizeof(O)];
    std::memcpy(bytes, &op, sizeof op);
    for (unsigned change = random() % 4; change > 0; --change) {
      const std::uint64_t value = word(random, right);
      if (random() % 3 == 0) {
        bytes[random() % sizeof(O)] = static_cast<std::byte>(value);
      } else {
        std::memcpy(bytes + random() % (sizeof(O) / 8) * 8, &value, sizeof value);
      }
    }
    const auto end = execute({O::name, bytes, 0, 1, random() % 3}, right.memory());
    CHECK((end.fault == softgpu::Fault::none) == end.detail.empty());
    (end.fault == softgpu::Fault::none ? computed : refused) += 1;
  }
  CHECK(computed > 0);
  CHECK(refused > 0);
}

}  // namespace

TEST_CASE("a decomposition with some bytes changed stays inside the device's memory") {
  try_changes<Decomposition>(20000);
}

TEST_CASE("a product of fp8 with some bytes changed stays inside the device's memory") {
  try_changes<Gemm>(5000);
}

TEST_CASE("an operation of cuDNN with some bytes changed stays inside the device's memory") {
  try_changes<Convolution>();
  try_changes<Pointwise>();
  try_changes<Reduction>();
  try_changes<BatchNormalization>();
  try_changes<Softmax>();
  try_changes<Pooling>();
  try_changes<ResponseNormalization>();
  try_changes<Dropout>();
  try_changes<Rnn>();
  try_changes<Attention>();
  try_changes<CtcLoss>();
  try_changes<SpatialTransformer>();
}
