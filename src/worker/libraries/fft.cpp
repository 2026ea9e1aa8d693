// Transforms by cuFFT: a plan for the lines of the first loop, executed once for each index of the others.
#include "libraries/operations/fft.h"

#include <string>

#include "worker/libraries/execution.h"
#include "worker/libraries/workspace.h"

namespace gpupool::worker {
namespace {

using operations::Fft;
using operations::FftKind;
using operations::FftPrecision;

/// cufftResult as a result of the driver.
CUresult result_of_cufft(int status) {
  switch (status) {
    case 0:
      return CUDA_SUCCESS;
    case 2:  // ALLOC_FAILED
      return CUDA_ERROR_OUT_OF_MEMORY;
    case 3:  // INVALID_TYPE, INVALID_VALUE, INVALID_SIZE
    case 4:
    case 8:
      return CUDA_ERROR_INVALID_VALUE;
    case 16:  // NOT_SUPPORTED
    case Library::missing:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

/// cudaDataType and bytes of one side's elements.
struct Numbers {
  int type;
  std::int64_t bytes;
};
Numbers numbers_of(FftPrecision precision, bool real) {
  switch (precision) {
    case FftPrecision::half:
      return real ? Numbers{2, 2} : Numbers{6, 4};
    case FftPrecision::double_:
      return real ? Numbers{1, 8} : Numbers{5, 16};
    default:
      return real ? Numbers{0, 4} : Numbers{4, 8};
  }
}

/// Equal for transforms that one plan does.
std::string shape_of(const Fft& of) {
  return key_of(of, [](Fft& operation) {
    operation.input = operation.output = 0;
    operation.sign = 0;
    operation.twiddle = 0;
    for (int i = 1; i < Fft::max_loops; ++i) operation.loops[i] = {};
  });
}

/// The status is the library's.
int make_transform(Library& library, const Fft& of, Transform& made) {
  const Numbers in = numbers_of(of.precision, of.kind == FftKind::real_to_complex),
                out = numbers_of(of.precision, of.kind == FftKind::complex_to_real),
                complex = numbers_of(of.precision, false);
  // The library wants a distance between lines also where there is one line.
  const auto apart = [&](std::int64_t stride) {
    return static_cast<long long>(of.loops[0].count == 1 && stride == 0 ? 1 : stride);
  };
  long long length = of.length;
  int status = library.call("cufftCreate", &made.plan);
  if (status != 0) return status;
  status = library.call("cufftSetAutoAllocation", made.plan, 0);
  // With one dimension, the sizes around the lines say only that there are strides.
  if (status == 0)
    status = library.call("cufftXtMakePlanMany", made.plan, 1, &length, &length,
                          static_cast<long long>(of.input_stride), apart(of.loops[0].input_stride), in.type,
                          &length, static_cast<long long>(of.output_stride), apart(of.loops[0].output_stride),
                          out.type, static_cast<long long>(of.loops[0].count), &made.work, complex.type);
  if (status != 0) library.call("cufftDestroy", made.plan);
  return status;
}

/// Also of a transform on another stream: programs are captured on one, and have their plans from another.
int plan_of(const Execution& x, const Fft& of, Transform& plan) {
  constexpr std::size_t most = 1024;
  auto& plans = x.state.transforms;
  const std::string key = shape_of(of);
  auto known = plans.find(key);
  if (known == plans.end()) {
    const Preparation::Scope preparing(x.libraries.preparation);
    Library& library = x.libraries.cufft;
    Transform made;
    if (const int bad = make_transform(library, of, made); bad != 0) return bad;
    make_room(x, plans, most, [&](const Transform& old) { library.call("cufftDestroy", old.plan); });
    known = plans.emplace(key, made).first;
  }
  note_use(x, known->second);
  plan = known->second;
  return 0;
}

/// The columns of a long line: the library transforms the line as it is.
Fft whole_lines(const Fft& columns) {
  Fft made = columns;
  made.twiddle = 0;
  made.length = columns.twiddle;
  made.input_stride = columns.loops[0].input_stride;
  made.output_stride = 1;
  made.loops[0] = columns.loops[1];
  made.loops[1] = {};
  return made;
}

/// The rows of long lines, which are transformed already: they go to where they belong.
CUresult bring(const Execution& x, const Fft& rows) {
  const auto bytes = static_cast<std::size_t>(numbers_of(rows.precision, false).bytes);
  const auto numbers = static_cast<std::size_t>(rows.length) * static_cast<std::size_t>(rows.loops[0].count);
  const auto apart = static_cast<std::size_t>(rows.loops[0].output_stride) * bytes;
  CUresult result = CUDA_SUCCESS;
  for (std::int64_t i = 0; result == CUDA_SUCCESS && i < rows.loops[1].count; ++i) {
    const std::uint64_t from = rows.input + static_cast<std::uint64_t>(i) *
                                                static_cast<std::uint64_t>(rows.loops[1].input_stride) *
                                                bytes;
    const std::uint64_t to = rows.output + static_cast<std::uint64_t>(i) *
                                               static_cast<std::uint64_t>(rows.loops[1].output_stride) *
                                               bytes;
    if (apart == bytes) {  // no rectangle: the driver takes none of 2 GiB in a row
      result = x.libraries.api.cuMemcpyDtoDAsync_v2_(to, from, numbers * bytes, x.stream);
      continue;
    }
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.dstDevice = to;
    copy.WidthInBytes = copy.srcPitch = bytes;
    copy.Height = numbers;
    copy.dstPitch = apart;
    result = x.libraries.api.cuMemcpy2DAsync_v2_(&copy, x.stream);
  }
  return result;
}

CUresult transform(const Execution& x, const Fft& of) {
  Transform made;
  if (const int bad = plan_of(x, of, made); bad != 0) return result_of_cufft(bad);
  const int plan = made.plan;
  const Workspace work(x, made.work);
  if (!work.there()) return CUDA_ERROR_OUT_OF_MEMORY;
  Library& library = x.libraries.cufft;
  int status = library.call("cufftSetStream", plan, x.stream);
  if (status == 0 && made.work != 0) status = library.call("cufftSetWorkArea", plan, work.address());
  const auto bytes = [&](FftKind real) {
    return static_cast<std::uint64_t>(numbers_of(of.precision, of.kind == real).bytes);
  };
  const std::uint64_t in = bytes(FftKind::real_to_complex), out = bytes(FftKind::complex_to_real);
  // Without a sign: a client's strides may be anything.
  const auto times = [](std::int64_t a, std::int64_t b) {
    return static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b);
  };
  const auto& [first, second, third, fourth] = of.loops;
  for (std::int64_t i = 0; status == 0 && i < second.count; ++i) {
    for (std::int64_t j = 0; status == 0 && j < third.count; ++j) {
      for (std::int64_t k = 0; status == 0 && k < fourth.count; ++k) {
        const std::uint64_t input =
            times(i, second.input_stride) + times(j, third.input_stride) + times(k, fourth.input_stride);
        const std::uint64_t output =
            times(i, second.output_stride) + times(j, third.output_stride) + times(k, fourth.output_stride);
        status = library.call("cufftXtExec", plan, pointer<void>(of.input + input * in),
                              pointer<void>(of.output + output * out), static_cast<int>(of.sign));
      }
    }
  }
  return result_of_cufft(status);
}

}  // namespace

CUresult run(const Execution& x, const Fft& of) {
  if (!operations::are_sizes({of.length, of.twiddle})) return CUDA_ERROR_INVALID_VALUE;
  for (const auto& loop : of.loops) {
    if (!operations::are_sizes({loop.count})) return CUDA_ERROR_INVALID_VALUE;
    if (loop.count == 0) return CUDA_SUCCESS;
  }
  // One call each.
  constexpr std::uint64_t most_calls = std::uint64_t{1} << 20;
  if (operations::parts_of({of.loops[1].count, of.loops[2].count, of.loops[3].count}) > most_calls)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (of.after_columns) return bring(x, of);
  return transform(x, of.twiddle != 0 ? whole_lines(of) : of);
}

}  // namespace gpupool::worker
