// Level 1 of BLAS. What changes elements does so in parts; a number of a whole vector is made by one, in one
// order, with sums in double precision.
#include "libraries/operations/vectors.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "libraries/operations/rotations.h"
#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/views.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::OnVectors;
using gpupool::operations::Vector;
using gpupool::operations::Vectors;

constexpr std::int64_t chunk = 2048;  // elements that are copied at once

View view_of(const Vector& vector, std::int64_t n, const Memory& memory, const char* what) {
  View view;
  view.address = vector.address;
  view.row = vector.increment;
  view.type = vector.type;
  const std::int64_t limit = std::int64_t{1} << 48;
  // What lies in one place has no end of memory.
  if (n > std::int64_t{1} << (vector.increment == 0 ? 31 : 40) || vector.increment > limit ||
      vector.increment < -limit)
    wrong(std::string(what) + " is no vector");
  // Its first element is the last one in memory; 2^88 elements behind the address nothing is found.
  if (vector.increment < 0) {
    const __int128 first = static_cast<__int128>(n - 1) * -vector.increment;
    if (first > INT64_MAX) throw Failure(softgpu::Fault::illegal_address, std::string(what) + " has no end");
    view.offset = static_cast<std::int64_t>(first);
  }
  return located(view, n, 1, 0, memory, what);
}

/// Elements [i, i + count): where they lie, else in `room`.
template <class N>
N* taken(const View& vector, std::int64_t i, std::int64_t count, std::vector<N>& room, bool reads) {
  if (vector.row == 1 && vector.type == element_of<N>) return reinterpret_cast<N*>(vector.address) + i;
  room.resize(chunk);
  if (reads) read_block(vector, {i, i + count, 0, 1}, room.data());
  return room.data();
}

template <class N>
void put_back(const View& vector, std::int64_t i, std::int64_t count, const std::vector<N>& room) {
  if (vector.row == 1 && vector.type == element_of<N>) return;
  write_block<N>(vector, {i, i + count, 0, 1}, false,
                 [&](std::int64_t at, std::int64_t, N) { return room[static_cast<std::size_t>(at - i)]; });
}

/// H of a modified rotation.
template <class N>
struct Modified {
  N h11 = N(1), h21 = N(0), h12 = N(0), h22 = N(1);

  Modified(const Vectors& op, const Memory& memory) {
    N p[5];
    if (op.alpha.on_device) {
      const bool known = with_type(op.alpha.type, [&](auto type) {
        const auto* const at = memory.at<decltype(type)>(op.alpha.value.words[0], 5, "the parameters");
        for (int i = 0; i < 5; ++i) p[i] = to_number<N>(at[i]);
      });
      if (!known) wrong("the parameters: unknown type");
    } else {
      for (int i = 0; i < 5; ++i) p[i] = to_number<N>(op.parameters[i]);
    }
    const double kind = to_number<double>(p[0]);
    if (kind == -2) return;
    if (kind != 0) h11 = p[1], h22 = p[4];
    if (kind != 1) h21 = p[2], h12 = p[3];
    if (kind == 1) h21 = N(-1), h12 = N(1);
  }
};

template <class N>
void elements(const Vectors& op, const View& x, const View& y, std::int64_t begin, std::int64_t end,
              const Memory& memory) {
  std::vector<N> room_x, room_y;
  const bool uses_y = op.what != OnVectors::scale;
  const bool writes_x = op.what != OnVectors::copy && op.what != OnVectors::add;
  // `f` changes the two of a pair.
  const auto each = [&](auto f) {
    for (std::int64_t i = begin; i < end; i += chunk) {
      const std::int64_t count = std::min(chunk, end - i);
      N* const of_x = taken(x, i, count, room_x, true);
      N* const of_y = uses_y ? taken(y, i, count, room_y, op.what != OnVectors::copy) : of_x;
      for (std::int64_t at = 0; at < count; ++at) f(of_x[at], of_y[at]);
      if (writes_x) put_back(x, i, count, room_x);
      if (uses_y) put_back(y, i, count, room_y);
    }
  };
  switch (op.what) {
    case OnVectors::copy:
      return each([](N& a, N& b) { b = a; });
    case OnVectors::swap:
      return each([](N& a, N& b) { std::swap(a, b); });
    case OnVectors::scale: {
      const N alpha = number<N>(op.alpha, memory, "alpha");
      return each([&](N& a, N&) { a = times(alpha, a); });
    }
    case OnVectors::add: {
      const N alpha = number<N>(op.alpha, memory, "alpha");
      if (alpha == N(0)) return;
      return each([&](N& a, N& b) { b += times(alpha, a); });
    }
    case OnVectors::rotate: {
      const N c = number<N>(op.alpha, memory, "c"), s = number<N>(op.beta, memory, "s");
      return each([&](N& a, N& b) {
        const N turned = times(c, a) + times(s, b);
        b = times(c, b) - times(conjugate(s), a);
        a = turned;
      });
    }
    case OnVectors::modified: {
      const Modified<N> h(op, memory);
      return each([&](N& a, N& b) {
        const N turned = times(h.h11, a) + times(h.h12, b);
        b = times(h.h21, a) + times(h.h22, b);
        a = turned;
      });
    }
    default:
      wrong("nothing that is done with elements");
  }
}

/// A sum in eight lanes, which are added up in one order.
template <class N>
class Sum {
 public:
  template <class F>
  void add(std::int64_t count, F f) {
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
      for (std::int64_t lane = 0; lane < 8; ++lane) lanes_[lane] += f(i + lane);
    }
    for (; i < count; ++i) lanes_[i % 8] += f(i);
  }
  [[nodiscard]] N total() const {
    return ((lanes_[0] + lanes_[1]) + (lanes_[2] + lanes_[3])) +
           ((lanes_[4] + lanes_[5]) + (lanes_[6] + lanes_[7]));
  }

 private:
  N lanes_[8] = {};
};

/// f(elements, how many) for all chunks of x.
template <class N, class F>
void each_chunk(const View& x, std::int64_t n, std::vector<N>& room, F f) {
  for (std::int64_t i = 0; i < n; i += chunk) {
    const std::int64_t count = std::min(chunk, n - i);
    f(taken(x, i, count, room, true), i, count);
  }
}

template <class N>
double square(N value) {
  if constexpr (std::is_arithmetic_v<N>) {
    return value * value;
  } else {
    return value.real() * value.real() + value.imag() * value.imag();
  }
}
template <class N>
auto size(N value) {
  if constexpr (std::is_arithmetic_v<N>) {
    return std::abs(value);
  } else {
    return std::abs(value.real()) + std::abs(value.imag());
  }
}

template <class N>
double norm(const View& x, std::int64_t n) {
  std::vector<N> room;
  const auto length = [&](double scale) {
    Sum<double> sum;
    each_chunk<N>(x, n, room, [&](const N* of, std::int64_t, std::int64_t count) {
      sum.add(count, [&](std::int64_t i) { return square(of[i] * scale); });
    });
    return std::sqrt(sum.total()) / scale;
  };
  const double plain = length(1);
  if (std::isnan(plain) || (plain > 1e-140 && plain < 1e150)) return plain;
  double most = 0;
  each_chunk<N>(x, n, room, [&](const N* of, std::int64_t, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) most = std::max(most, size(of[i]));
  });
  if (most == 0 || !std::isfinite(most)) return most;
  return length(std::ldexp(1.0, std::clamp(-std::ilogb(most), -1000, 1000)));
}

/// `N`: a double, or a complex of two.
template <class N>
N number_of(const Vectors& op, const View& x, const View& y) {
  std::vector<N> room_x, room_y;
  switch (op.what) {
    case OnVectors::dot:
    case OnVectors::conjugated_dot: {
      Sum<N> sum;
      each_chunk<N>(x, op.n, room_x, [&](const N* a, std::int64_t i, std::int64_t count) {
        const N* const b = taken(y, i, count, room_y, true);
        if (op.what == OnVectors::dot) {
          sum.add(count, [&](std::int64_t at) { return times(a[at], b[at]); });
        } else {
          sum.add(count, [&](std::int64_t at) { return times(conjugate(a[at]), b[at]); });
        }
      });
      return sum.total();
    }
    case OnVectors::norm:
      return N(norm<N>(x, op.n));
    case OnVectors::sum: {
      Sum<double> sum;
      each_chunk<N>(x, op.n, room_x, [&](const N* a, std::int64_t, std::int64_t count) {
        sum.add(count, [&](std::int64_t i) { return size(a[i]); });
      });
      return N(sum.total());
    }
    default:
      wrong("nothing that makes a number");
  }
}

/// From 1 on; 0: there is none.
template <class N>
std::int64_t index_of(const Vectors& op, const View& x) {
  std::vector<N> room;
  std::int64_t found = 0;
  decltype(size(N{})) best{};
  each_chunk<N>(x, op.n, room, [&](const N* of, std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto here = size(of[i]);
      if (found != 0 && !(op.what == OnVectors::largest ? here > best : here < best)) continue;
      best = here;
      found = first + i + 1;
    }
  });
  return found;
}

template <class N>
void store(Element type, std::uint64_t address, N value, const Memory& memory) {
  const bool known = with_type(type, [&](auto as) {
    using T = decltype(as);
    *memory.at<T>(address, 1, "the result") = to_element<T>(value);
  });
  if (!known) wrong("the result: unknown type");
}

void reduce(const Vectors& op, const View& x, const View& y, const Memory& memory) {
  if (op.what == OnVectors::largest || op.what == OnVectors::smallest) {
    std::int64_t found = 0;
    const bool narrow = op.x.type == Element::f16 || op.x.type == Element::bf16;
    with_number(narrow ? Element::f32 : op.x.type,
                [&](auto type) { found = index_of<decltype(type)>(op, x); });
    if (op.wide) {
      *memory.at<std::int64_t>(op.places[0], 1, "the result") = found;
    } else {
      *memory.at<std::int32_t>(op.places[0], 1, "the result") = static_cast<std::int32_t>(found);
    }
  } else if (gpupool::operations::is_complex(op.x.type)) {
    store(op.result, op.places[0], number_of<std::complex<double>>(op, x, y), memory);
  } else {
    store(op.result, op.places[0], number_of<double>(op, x, y), memory);
  }
}

/// A number in device memory, which may be changed.
template <class N>
class Place {
 public:
  Place(Element type, std::uint64_t address, const Memory& memory, bool reads)
      : type_(type), address_(address), memory_(memory) {
    if (!with_type(type, [&](auto as) {
          const auto* const at = memory.at<decltype(as)>(address, 1, "a number of the rotation");
          if (reads) value = to_number<N>(*at);
        }))
      wrong("a number of the rotation: unknown type");
  }
  void put() const { store(type_, address_, value, memory_); }

  N value{};

 private:
  Element type_;
  std::uint64_t address_;
  const Memory& memory_;
};

template <class N>
void make_rotation(const Vectors& op, const Memory& memory) {
  using Real = decltype(std::abs(N{}));
  Place<N> a(op.x.type, op.places[0], memory, true), b(op.x.type, op.places[1], memory, true);
  Place<Real> c(op.alpha.type, op.places[2], memory, false);
  Place<N> s(op.beta.type, op.places[3], memory, false);
  gpupool::operations::make_rotation(a.value, b.value, c.value, s.value);
  a.put(), b.put(), c.put(), s.put();
}

template <class N>
void make_modified(const Vectors& op, const Memory& memory) {
  Place<N> d1(op.x.type, op.places[0], memory, true), d2(op.x.type, op.places[1], memory, true),
      x1(op.x.type, op.places[2], memory, true);
  const Place<N> y1(op.x.type, op.places[3], memory, true);
  const bool known = with_type(op.x.type, [&](auto type) {
    using T = decltype(type);
    T* const at = memory.at<T>(op.places[4], 5, "the parameters");
    N parameters[5];
    for (int i = 0; i < 5; ++i) parameters[i] = to_number<N>(at[i]);
    gpupool::operations::make_modified(d1.value, d2.value, x1.value, y1.value, parameters);
    for (int i = 0; i < 5; ++i) at[i] = to_element<T>(parameters[i]);
  });
  if (!known) wrong("the parameters: unknown type");
  d1.put(), d2.put(), x1.put();
}

void make(const Vectors& op, const Memory& memory) {
  with_number(op.compute, [&](auto type) {
    using N = decltype(type);
    if (op.what == OnVectors::make_rotation) return make_rotation<N>(op, memory);
    if constexpr (std::is_arithmetic_v<N>) return make_modified<N>(op, memory);
    wrong("no modified rotation of complex numbers");
  });
}

}  // namespace

void run(const Vectors& op, const Parts& parts, const Memory& memory) {
  if (op.what > OnVectors::make_modified) wrong("nothing that is done with vectors");
  if (op.what >= OnVectors::make_rotation) return parts.each(1, [&](std::uint64_t) { make(op, memory); });
  const std::int64_t n = std::max<std::int64_t>(op.n, 0);
  const bool uses_y = op.what != OnVectors::scale && op.what < OnVectors::norm;
  const View x = view_of(op.x, n, memory, "x"), y = uses_y ? view_of(op.y, n, memory, "y") : View{};
  if (op.what >= OnVectors::dot) return parts.each(1, [&](std::uint64_t) { reduce(op, x, y, memory); });
  with_number(op.compute, [&](auto type) {
    const std::uint64_t count = op.parts();
    parts.each(count, [&](std::uint64_t part) {
      const std::int64_t begin = count == 1 ? 0 : static_cast<std::int64_t>(part) * Vectors::piece;
      elements<decltype(type)>(op, x, y, begin, count == 1 ? n : std::min(n, begin + Vectors::piece), memory);
    });
  });
}

}  // namespace softgpu::libraries
