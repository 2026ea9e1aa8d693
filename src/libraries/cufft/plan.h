// What a cufftHandle stands for: state of this process, never a message.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "libraries/cufft/status.h"
#include "libraries/operations/fft.h"

namespace gpupool::cufft {

using operations::Fft;
using operations::FftKind;
using operations::FftPrecision;

/// What is transformed: the kind of numbers.
struct Type {
  FftKind kind;
  FftPrecision precision;

  bool operator==(const Type&) const = default;
};
/// cufftType_t.
std::optional<Type> type_of(int type);
/// cudaDataType of input, output and execution.
std::optional<Type> type_of(int input, int output, int execution);

/// How one side lies in memory, in elements of its own.
struct Layout {
  std::int64_t strides[3] = {};  // of each dimension
  std::int64_t distance = 0;     // between batches
};

/// A transform that a call asked for, checked.
struct Shape {
  Type type{};
  int rank = 0;
  std::int64_t n[3] = {};
  std::int64_t batch = 0;
  std::optional<Layout> input, output;  // absent: the basic layout
  /// Few long lines are matrices, whose columns have so many numbers; 0: they are computed as any others.
  std::int64_t column = 0;
};

/// Device memory of a plan's own, which goes with it.
class WorkArea {
 public:
  WorkArea() = default;
  WorkArea(const WorkArea&) = delete;
  WorkArea& operator=(const WorkArea&) = delete;
  ~WorkArea();
  CUresult allocate(std::size_t bytes);
  /// 0: there is none, or it went away with the GPU session.
  [[nodiscard]] std::uint64_t address() const;

 private:
  CUdeviceptr address_ = 0;
  unsigned session_ = 0;
};

struct Plan {
  std::optional<Shape> shape;  // absent until it is made
  CUstream stream = nullptr;
  bool allocates = true;
  WorkArea own;             // where it allocates
  std::uint64_t given = 0;  // the program's, in its place
  std::map<int, long long> properties;
};

/// The plan, or null: no such handle.
std::shared_ptr<Plan> find(int handle);
int create();
bool destroy(int handle);

/// The shape of the call's arguments, or the status that they get.
template <class Int>
Status read_shape(Shape& shape, Type type, int rank, const Int* n, const Int* inembed, Int istride, Int idist,
                  const Int* onembed, Int ostride, Int odist, Int batch);

/// Decides what `column` is.
void divide(Shape& shape);
/// What a transform's work area has: 0 but for few long lines, whose parts are computed at the same time
/// then.
std::size_t work_bytes(const Shape& shape);

/// The operations of a transform, in order. C2R of several dimensions overwrites its input, as documented.
/// Without a work area (0) long lines are computed as any others.
std::vector<Fft> operations_of(const Shape& shape, std::uint64_t input, std::uint64_t output,
                               std::uint64_t work, int sign);

}  // namespace gpupool::cufft
