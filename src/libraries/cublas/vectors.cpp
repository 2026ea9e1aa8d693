// Level 1, and its results.
#include "libraries/operations/vectors.h"

#include <complex>
#include <cstdint>
#include <cstring>
#include <optional>

#include "libraries/cublas/calls.h"
#include "libraries/cublas/gemm_types.h"
#include "libraries/cublas/scratch.h"
#include "libraries/operations/rotations.h"
#include "libraries/shared/launch.h"

namespace gpupool::cublas {
namespace {

using operations::OnVectors;
using operations::Vector;
using operations::Vectors;

/// The types of all that a call names.
struct Kinds {
  Element x, y, alpha, result, compute;
};

bool narrow(Element type) {
  return type == Element::f16 || type == Element::bf16;
}

/// By the function's name, or (…Ex) as the call says; none: cuBLAS has no such function.
std::optional<Kinds> kinds_of(const Types& types, const Call& call) {
  if (call.type_x < 0) return Kinds{types.element, types.element, types.scalar, types.output, types.element};
  for (const int type : {call.type_x, call.type_y, call.type_alpha, call.type_result, call.compute}) {
    if (type >= 0 && !known(type)) return std::nullopt;
  }
  const auto named = [](int type, Element otherwise) {
    return type >= 0 ? static_cast<Element>(type) : otherwise;
  };
  Kinds kinds{};
  kinds.x = static_cast<Element>(call.type_x);
  kinds.y = named(call.type_y, kinds.x);
  const bool floating = narrow(kinds.x) || kinds.x == Element::f32 || kinds.x == Element::f64 ||
                        operations::is_complex(kinds.x);
  const Element own = narrow(kinds.x) ? Element::f32 : kinds.x;
  const Element compute = named(call.compute, own);
  kinds.alpha = named(call.type_alpha, compute);
  kinds.result = named(call.type_result, compute);
  kinds.compute = own;
  const auto belongs = [&](Element type) { return type == kinds.x || type == own || type == real_of(own); };
  if (!floating || kinds.y != kinds.x || !belongs(compute) || narrow(compute) || !belongs(kinds.alpha) ||
      !belongs(kinds.result))
    return std::nullopt;
  return kinds;
}

Vector vector(const void* at, std::int64_t increment, Element type) {
  Vector made;
  made.address = address(at);
  made.increment = increment;
  made.type = type;
  return made;
}

Vectors operation(OnVectors what, const Call& call, const Kinds& kinds) {
  Vectors made;
  made.what = what;
  made.x = vector(call.x, call.incx, kinds.x);
  made.y = vector(call.y, call.incy, kinds.y);
  made.n = call.n;
  made.compute = kinds.compute;
  made.result = kinds.result;
  return made;
}

int post(const Handle& handle, const Vectors& operation) {
  return status_of(libraries::launch(operation, handle.stream));
}

/// A function that changes vectors: `set` sets what else the operation has, or says what is wrong.
template <class Set>
int change(const Handle& handle, const Types& types, const Call& call, OnVectors what, Set set) {
  const auto kinds = kinds_of(types, call);
  if (!kinds) return not_supported;
  if (call.n <= 0) return success;
  Vectors made = operation(what, call, *kinds);
  if (const int bad = set(made, *kinds); bad != success) return bad;
  return post(handle, made);
}

int nothing_more(Vectors&, const Kinds&) {
  return success;
}

/// A function with one number as its result.
int reduce(Handle& handle, const Types& types, const Call& call, OnVectors what, bool empty) {
  const auto kinds = kinds_of(types, call);
  if (!kinds) return not_supported;
  if (call.result == nullptr) return invalid_value;
  Vectors made = operation(what, call, *kinds);
  if (empty) made.n = 0;
  const bool index = what == OnVectors::largest || what == OnVectors::smallest;
  made.wide = call.wide;
  const std::size_t bytes = index ? (call.wide ? 8 : 4) : operations::bytes_of(kinds->result);
  if (handle.pointer_mode == device) {
    made.places[0] = address(call.result);
    return post(handle, made);
  }
  if (empty) {
    std::memset(call.result, 0, bytes);
    return success;
  }
  return into_host(handle, call.result, bytes, [&](std::uint64_t place) {
    made.places[0] = place;
    return libraries::launch(made, handle.stream);
  });
}

/// Calls f with a value of the type of numbers in host memory; `fails` for others.
template <class F>
int with_host_type(Element type, F f) {
  switch (type) {
    case Element::f32:
      return f(float{});
    case Element::f64:
      return f(double{});
    case Element::c32:
      return f(std::complex<float>{});
    case Element::c64:
      return f(std::complex<double>{});
    default:
      return not_supported;
  }
}

}  // namespace

int copy(Handle& handle, const Types& types, const Call& call) {
  return change(handle, types, call, OnVectors::copy, nothing_more);
}
int swap(Handle& handle, const Types& types, const Call& call) {
  return change(handle, types, call, OnVectors::swap, nothing_more);
}
int scal(Handle& handle, const Types& types, const Call& call) {
  if (call.incx <= 0) return success;
  return change(handle, types, call, OnVectors::scale, [&](Vectors& made, const Kinds& kinds) -> int {
    if (call.alpha == nullptr) return invalid_value;
    made.alpha = factor(handle, call.alpha, kinds.alpha);
    return success;
  });
}
int axpy(Handle& handle, const Types& types, const Call& call) {
  return change(handle, types, call, OnVectors::add, [&](Vectors& made, const Kinds& kinds) -> int {
    if (call.alpha == nullptr) return invalid_value;
    made.alpha = factor(handle, call.alpha, kinds.alpha);
    return success;
  });
}
int rot(Handle& handle, const Types& types, const Call& call) {
  return change(handle, types, call, OnVectors::rotate, [&](Vectors& made, const Kinds& kinds) -> int {
    if (call.cosine == nullptr || call.sine == nullptr) return invalid_value;
    made.alpha = factor(handle, call.cosine, real_of(kinds.alpha));
    made.beta = factor(handle, call.sine, kinds.alpha);
    return success;
  });
}
int rotm(Handle& handle, const Types& types, const Call& call) {
  return change(handle, types, call, OnVectors::modified, [&](Vectors& made, const Kinds& kinds) -> int {
    if (call.param == nullptr) return invalid_value;
    if (operations::is_complex(kinds.x)) return not_supported;
    if (handle.pointer_mode == device) {
      made.alpha = factor(handle, call.param, kinds.alpha);
      return success;
    }
    return with_host_type(kinds.alpha, [&](auto type) -> int {
      using T = decltype(type);
      if constexpr (std::is_arithmetic_v<T>) {
        for (int i = 0; i < 5; ++i)
          made.parameters[i] = static_cast<double>(static_cast<const T*>(call.param)[i]);
        return success;
      }
      return not_supported;
    });
  });
}

int rotg(Handle& handle, const Types& types, const Call& call) {
  const auto kinds = kinds_of(types, call);
  if (!kinds) return not_supported;
  if (call.a == nullptr || call.b == nullptr || call.cosine == nullptr || call.sine == nullptr)
    return invalid_value;
  if (handle.pointer_mode == device) {
    Vectors made = operation(OnVectors::make_rotation, call, *kinds);
    made.alpha.type = real_of(kinds->alpha);
    made.beta.type = kinds->alpha;
    const void* const places[] = {call.a, call.b, call.cosine, call.sine};
    for (int i = 0; i < 4; ++i) made.places[i] = address(places[i]);
    return post(handle, made);
  }
  if (kinds->alpha != kinds->x) return not_supported;
  return with_host_type(kinds->x, [&](auto type) -> int {
    using T = decltype(type);
    using Real = decltype(std::abs(type));
    operations::make_rotation(*static_cast<T*>(call.a), *static_cast<T*>(call.b),
                              *static_cast<Real*>(call.cosine), *static_cast<T*>(call.sine));
    return success;
  });
}

int rotmg(Handle& handle, const Types& types, const Call& call) {
  const auto kinds = kinds_of(types, call);
  if (!kinds) return not_supported;
  for (const void* const place : {call.d1, call.d2, call.x1, call.y1, call.param}) {
    if (place == nullptr) return invalid_value;
  }
  if (handle.pointer_mode == device) {
    Vectors made = operation(OnVectors::make_modified, call, *kinds);
    const void* const places[] = {call.d1, call.d2, call.x1, call.y1, call.param};
    for (int i = 0; i < 5; ++i) made.places[i] = address(places[i]);
    return post(handle, made);
  }
  return with_host_type(kinds->x, [&](auto type) -> int {
    using T = decltype(type);
    if constexpr (std::is_arithmetic_v<T>) {
      operations::make_modified(*static_cast<T*>(call.d1), *static_cast<T*>(call.d2),
                                *static_cast<T*>(call.x1), *static_cast<const T*>(call.y1),
                                static_cast<T*>(call.param));
      return success;
    }
    return not_supported;
  });
}

int dot(Handle& handle, const Types& types, const Call& call) {
  return reduce(handle, types, call, call.conjugated ? OnVectors::conjugated_dot : OnVectors::dot,
                call.n <= 0);
}
int nrm2(Handle& handle, const Types& types, const Call& call) {
  return reduce(handle, types, call, OnVectors::norm, call.n <= 0 || call.incx <= 0);
}
int asum(Handle& handle, const Types& types, const Call& call) {
  return reduce(handle, types, call, OnVectors::sum, call.n <= 0 || call.incx <= 0);
}
int iamax(Handle& handle, const Types& types, const Call& call) {
  return reduce(handle, types, call, call.smallest ? OnVectors::smallest : OnVectors::largest,
                call.n <= 0 || call.incx <= 0);
}

}  // namespace gpupool::cublas
