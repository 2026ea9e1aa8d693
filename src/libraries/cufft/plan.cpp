#include "libraries/cufft/plan.h"

#include <mutex>

#include "libraries/shared/driver.h"

namespace gpupool::cufft {
namespace {

struct Plans {
  std::mutex mutex;
  std::map<int, std::shared_ptr<Plan>> all;
  int last = 0;
};

Plans& plans() {
  static Plans* const made = new Plans;  // never destroyed: other libraries' destructors may call
  return *made;
}

/// cudaDataType of complex and real numbers.
std::optional<FftPrecision> complex_precision(int type) {
  switch (type) {
    case 4:
      return FftPrecision::single_;
    case 5:
      return FftPrecision::double_;
    case 6:
      return FftPrecision::half;
    default:
      return std::nullopt;
  }
}
std::optional<FftPrecision> real_precision(int type) {
  switch (type) {
    case 0:
      return FftPrecision::single_;
    case 1:
      return FftPrecision::double_;
    case 2:
      return FftPrecision::half;
    default:
      return std::nullopt;
  }
}

}  // namespace

WorkArea::~WorkArea() {
  const libraries::Driver* driver = nullptr;
  if (address() != 0 && libraries::enter(driver) == CUDA_SUCCESS) driver->cuMemFree_v2(address_);
}

CUresult WorkArea::allocate(std::size_t bytes) {
  const libraries::Driver* driver = nullptr;
  if (const CUresult bad = libraries::enter(driver); bad != CUDA_SUCCESS) return bad;
  session_ = driver->session();
  return driver->cuMemAlloc_v2(&address_, bytes);
}

std::uint64_t WorkArea::address() const {
  const libraries::Driver* driver = nullptr;
  if (address_ == 0 || libraries::enter(driver) != CUDA_SUCCESS || driver->session() != session_) return 0;
  return address_;
}

std::optional<Type> type_of(int type) {
  switch (type) {
    case 0x29:
      return Type{FftKind::complex, FftPrecision::single_};
    case 0x2a:
      return Type{FftKind::real_to_complex, FftPrecision::single_};
    case 0x2c:
      return Type{FftKind::complex_to_real, FftPrecision::single_};
    case 0x69:
      return Type{FftKind::complex, FftPrecision::double_};
    case 0x6a:
      return Type{FftKind::real_to_complex, FftPrecision::double_};
    case 0x6c:
      return Type{FftKind::complex_to_real, FftPrecision::double_};
    default:
      return std::nullopt;
  }
}

std::optional<Type> type_of(int input, int output, int execution) {
  const auto precision = complex_precision(execution);
  if (!precision) return std::nullopt;
  const bool complex_input = complex_precision(input) == precision,
             complex_output = complex_precision(output) == precision;
  if (complex_input && complex_output) return Type{FftKind::complex, *precision};
  if (real_precision(input) == precision && complex_output) return Type{FftKind::real_to_complex, *precision};
  if (complex_input && real_precision(output) == precision) return Type{FftKind::complex_to_real, *precision};
  return std::nullopt;
}

std::shared_ptr<Plan> find(int handle) {
  const std::lock_guard lock(plans().mutex);
  const auto found = plans().all.find(handle);
  return found != plans().all.end() ? found->second : nullptr;
}

int create() {
  auto plan = std::make_shared<Plan>();
  const std::lock_guard lock(plans().mutex);
  plans().all.emplace(++plans().last, std::move(plan));
  return plans().last;
}

bool destroy(int handle) {
  const std::lock_guard lock(plans().mutex);
  return plans().all.erase(handle) != 0;
}

namespace {

template <class Int>
Layout layout(int rank, const Int* embed, Int stride, Int distance) {
  Layout made;
  std::int64_t apart = stride;
  for (int i = rank - 1; i >= 0; --i) {
    made.strides[i] = apart;
    if (i > 0) apart *= embed[i];
  }
  made.distance = distance;
  return made;
}

}  // namespace

template <class Int>
Status read_shape(Shape& shape, Type type, int rank, const Int* n, const Int* inembed, Int istride, Int idist,
                  const Int* onembed, Int ostride, Int odist, Int batch) {
  if (rank < 1 || rank > 3 || n == nullptr) return invalid_value;
  shape.type = type;
  shape.rank = rank;
  shape.batch = batch;
  std::int64_t numbers = batch;
  constexpr std::int64_t most = std::int64_t{1} << 40;
  for (int i = 0; i < rank; ++i) {
    if (n[i] < 1 || batch < 1 || numbers > most / n[i]) return invalid_size;
    shape.n[i] = n[i];
    numbers *= n[i];
  }
  if (inembed == nullptr || onembed == nullptr) return success;
  for (const bool input : {true, false}) {
    const Int* const embed = input ? inembed : onembed;
    const Int stride = input ? istride : ostride, distance = input ? idist : odist;
    if (stride < 1 || distance < 1 || stride > most || distance > most) return invalid_value;
    std::int64_t all = stride;
    for (int i = 1; i < rank; ++i) {
      if (embed[i] < 1 || all > most / embed[i]) return invalid_value;
      all *= embed[i];
    }
    (input ? shape.input : shape.output) = layout<Int>(rank, embed, stride, distance);
  }
  return success;
}

template Status read_shape(Shape&, Type, int, const int*, const int*, int, int, const int*, int, int, int);
template Status read_shape(Shape&, Type, int, const long long*, const long long*, long long, long long,
                           const long long*, long long, long long, long long);

}  // namespace gpupool::cufft
