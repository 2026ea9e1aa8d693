// Views of matrices (libraries/operations/view.h) in device memory: checked, read as numbers and written.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "libraries/operations/scalar.h"
#include "libraries/operations/view.h"
#include "softgpu/libraries/blas.h"
#include "softgpu/libraries/elements.h"
#include "softgpu/libraries/memory.h"

namespace softgpu::libraries {

using gpupool::operations::Packed;
using gpupool::operations::Structure;
using gpupool::operations::View;

[[noreturn]] inline void wrong(const std::string& why) {
  throw Failure(softgpu::Fault::illegal_instruction, why);
}

/// Rows [i, i_end) and columns [j, j_end).
struct Block {
  std::int64_t i, i_end, j, j_end;
  [[nodiscard]] std::int64_t rows() const { return i_end - i; }
  [[nodiscard]] std::int64_t columns() const { return j_end - j; }
};

/// The view of one batch's matrix: `address` is its own, and all that is stored of its rows × columns is
/// device memory. Ends the operation where it is not, or where the view is none.
View located(const View& view, std::int64_t rows, std::int64_t columns, std::int64_t batch,
             const Memory& memory, const char* what);

/// Ends the operation where elements of rows × columns that are written lie in one place: so there are no
/// more than memory holds.
void check_apart(const View& view, std::int64_t rows, std::int64_t columns, const char* what);

/// Of one that lies in host memory: `rows` × any columns in column order.
template <class N>
View room_view(const N* data, std::int64_t rows, Element type) {
  View view;
  view.address = reinterpret_cast<std::uintptr_t>(data);
  view.column = rows;
  view.type = type;
  return view;
}

/// How many elements behind the address (i, j) lies.
inline std::int64_t offset_of(const View& view, std::int64_t i, std::int64_t j) {
  if (view.packed == Packed::no) return i * view.row + j * view.column;
  if (view.turned) std::swap(i, j);
  return view.packed == Packed::upper ? i + j * (j + 1) / 2 : i + j * (2 * view.column - j - 1) / 2;
}

inline bool is_stored(const View& view, std::int64_t i, std::int64_t j) {
  return i - j <= view.below && j - i <= view.above;
}
/// Whether all of a block is stored.
inline bool is_stored(const View& view, const Block& block) {
  return block.i_end - 1 - block.j <= view.below && block.j_end - 1 - block.i <= view.above;
}
/// Whether nothing of it is.
inline bool is_outside(const View& view, const Block& block) {
  return block.i - (block.j_end - 1) > view.below || block.j - (block.i_end - 1) > view.above;
}

/// How many diagonals below and above the main one are not zero, stored or not: a matrix that mirrors what is
/// stored has as many on both sides.
struct Band {
  std::int64_t below, above;
};
inline Band band_of(const View& view) {
  const std::int64_t both = std::max(view.below, view.above);
  return view.structure == Structure::zero ? Band{view.below, view.above} : Band{both, both};
}

/// The type of numbers to compute with.
template <class N>
constexpr Element element_of = std::is_same_v<N, float>                 ? Element::f32
                               : std::is_same_v<N, double>              ? Element::f64
                               : std::is_same_v<N, std::complex<float>> ? Element::c32
                                                                        : Element::c64;

template <class N>
N conjugate(N value) {
  if constexpr (std::is_arithmetic_v<N>) {
    return value;
  } else {
    return std::conj(value);
  }
}

/// Products without the care for infinities that the language's complex ones take.
template <class N>
N times(N a, N b) {
  if constexpr (std::is_arithmetic_v<N>) {
    return a * b;
  } else {
    return N(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
  }
}

template <class N>
N real_only(N value) {
  if constexpr (std::is_arithmetic_v<N>) {
    return value;
  } else {
    return N(value.real());
  }
}

/// A factor's number.
template <class N>
N number(const gpupool::operations::Factor& factor, const Memory& memory, const char* what) {
  N result{};
  const bool known = with_type(factor.type, [&](auto type) {
    using T = decltype(type);
    T bits;
    if (factor.on_device) {
      bits = *memory.at<T>(factor.value.words[0], 1, what);
    } else {
      std::memcpy(&bits, factor.value.words, sizeof bits);
    }
    result = to_number<N>(bits);
  });
  if (!known) wrong(std::string(what) + ": unknown type");
  return result;
}

/// Where a block can be read as it lies: its first element, and how far columns are apart.
template <class N>
struct Panel {
  const N* data;
  std::int64_t leading;
  Trans trans;
};

/// The transposed matrix.
inline View transposed(View view, bool conjugated) {
  std::swap(view.row, view.column);
  std::swap(view.below, view.above);
  view.conjugated = view.conjugated != conjugated;
  return view;
}

/// None: it has to be copied.
template <class N>
std::optional<Panel<N>> as_it_lies(const View& view, const Block& block) {
  if (view.type != element_of<N> || view.packed != Packed::no) return std::nullopt;
  const bool on_diagonal = block.i < block.j_end && block.j < block.i_end;
  if (view.structure != Structure::zero) {
    // On one side of the diagonal it is what is stored, or the transposed of it.
    if (on_diagonal) return std::nullopt;
    View one = view;
    one.structure = Structure::zero;
    if (is_stored(view, block)) return as_it_lies<N>(one, block);
    return as_it_lies<N>(transposed(one, view.structure == Structure::hermitian), block);
  }
  if ((view.unit && on_diagonal) || !is_stored(view, block)) return std::nullopt;
  const N* const data = reinterpret_cast<const N*>(view.address) + offset_of(view, block.i, block.j);
  const bool conjugated = view.conjugated && !std::is_arithmetic_v<N>;
  if (view.row == 1 && (block.columns() <= 1 || view.column >= block.rows()))
    return Panel<N>{data, std::max({view.column, block.rows(), std::int64_t{1}}),
                    conjugated ? Trans::conjugate : Trans::none};
  if (view.column == 1 && (block.rows() <= 1 || view.row >= block.columns()))
    return Panel<N>{data, std::max({view.row, block.columns(), std::int64_t{1}}),
                    conjugated ? Trans::conjugate_transpose : Trans::transpose};
  return std::nullopt;
}

namespace detail {

/// Reads rows of a block whose elements lie together, some columns at once, so that each piece of memory is
/// read once.
template <class N, class T>
void read_rows(const View& view, const Block& block, const T* from, N* out) {
  constexpr std::int64_t strip = 16;
  for (std::int64_t j = block.j; j < block.j_end; j += strip, out += strip * block.rows()) {
    const std::int64_t count = std::min(strip, block.j_end - j);
    for (std::int64_t i = block.i; i < block.i_end; ++i) {
      const T* const row = from + i * view.row + j;
      for (std::int64_t at = 0; at < count; ++at)
        out[i - block.i + at * block.rows()] = to_number<N>(row[at]);
    }
  }
}

/// Reads a column of a block: what is above what is stored, that, and what is below it.
template <class N, class T>
void read_column(const View& view, const Block& block, std::int64_t j, const T* from, N* out) {
  const std::int64_t begin = std::clamp(j - view.above, block.i, block.i_end);
  const std::int64_t end = std::clamp(j + view.below + 1, begin, block.i_end);
  const auto fill = [&](std::int64_t i, std::int64_t i_end) {
    for (; i < i_end; ++i) {
      N value{};
      if (view.structure != Structure::zero && is_stored(view, j, i)) {
        value = to_number<N>(from[offset_of(view, j, i)]);
        if (view.structure == Structure::hermitian) value = conjugate(value);
      }
      out[i - block.i] = value;
    }
  };
  fill(block.i, begin);
  if (view.packed == Packed::no && view.row == 1 && begin < end) {
    const T* const first = from + offset_of(view, begin, j);
    for (std::int64_t i = begin; i < end; ++i) out[i - block.i] = to_number<N>(first[i - begin]);
  } else {
    for (std::int64_t i = begin; i < end; ++i) out[i - block.i] = to_number<N>(from[offset_of(view, i, j)]);
  }
  fill(end, block.i_end);
}

}  // namespace detail

/// Copies a block into `out`, in column order without gaps.
template <class N>
void read_block(const View& view, const Block& block, N* out) {
  with_type(view.type, [&](auto type) {
    using T = decltype(type);
    const T* const from = reinterpret_cast<const T*>(view.address);
    if (view.packed == Packed::no && view.column == 1 && view.row != 1 && is_stored(view, block)) {
      detail::read_rows(view, block, from, out);
    } else {
      for (std::int64_t j = block.j; j < block.j_end; ++j)
        detail::read_column(view, block, j, from, out + (j - block.j) * block.rows());
    }
  });
  for (std::int64_t j = std::max(block.i, block.j); j < std::min(block.i_end, block.j_end); ++j) {
    N& diagonal = out[j - block.i + (j - block.j) * block.rows()];
    if (view.unit) diagonal = N(1);
    if (view.structure == Structure::hermitian) diagonal = real_only(diagonal);
  }
  if (view.conjugated && !std::is_arithmetic_v<N>) {
    for (std::int64_t i = 0; i < block.rows() * block.columns(); ++i) out[i] = conjugate(out[i]);
  }
}

/// A block as a product can read it: as it lies, else copied into `room`.
template <class N>
Panel<N> panel(const View& view, const Block& block, std::vector<N>& room) {
  if (const auto found = as_it_lies<N>(view, block)) return *found;
  room.resize(static_cast<std::size_t>(block.rows() * block.columns()));
  read_block(view, block, room.data());
  return {room.data(), std::max<std::int64_t>(block.rows(), 1), Trans::none};
}

/// Writes f(i, j, what is there) to each stored element of a block. `reads`: whether what is there is read.
template <class N, class F>
void write_block(const View& view, const Block& block, bool reads, F f) {
  with_type(view.type, [&](auto type) {
    using T = decltype(type);
    T* const to = reinterpret_cast<T*>(view.address);
    for (std::int64_t j = block.j; j < block.j_end; ++j) {
      const std::int64_t end = std::min(block.i_end, j + view.below + 1);
      for (std::int64_t i = std::max(block.i, j - view.above); i < end; ++i) {
        T& element = to[offset_of(view, i, j)];
        element = to_element<T>(f(i, j, reads ? to_number<N>(element) : N{}));
      }
    }
  });
}

/// C += alpha · A · B over terms [begin, end), C in column order in host memory. `rows` of A, `columns` of B.
/// Terms outside of a factor's band are left out; where not all of a factor is stored, it is read in pieces.
template <class N>
void add_product(N alpha, const View& a, const View& b, const Block& of_c, std::int64_t terms, N beta, N* c,
                 std::int64_t ldc) {
  static thread_local std::vector<N> room_a, room_b;
  std::int64_t begin = 0, end = terms;
  const Band of_a = band_of(a), of_b = band_of(b);
  begin = std::max({begin, of_c.i - of_a.below, of_c.j - of_b.above});
  end = std::min({end, of_c.i_end + of_a.above, of_c.j_end + of_b.below});
  const bool whole = as_it_lies<N>(a, {of_c.i, of_c.i_end, begin, std::max(begin, end)}).has_value() &&
                     as_it_lies<N>(b, {begin, std::max(begin, end), of_c.j, of_c.j_end}).has_value();
  const std::int64_t step = whole ? std::max<std::int64_t>(end - begin, 1)
                                  : std::clamp<std::int64_t>(std::max(of_c.rows(), of_c.columns()), 128, 512);
  do {
    const std::int64_t next = std::max(begin, std::min(end, begin + step));
    const auto left = panel(a, {of_c.i, of_c.i_end, begin, next}, room_a);
    const auto right = panel(b, {begin, next, of_c.j, of_c.j_end}, room_b);
    gemm(left.trans, right.trans, of_c.rows(), of_c.columns(), next - begin, alpha, left.data, left.leading,
         right.data, right.leading, beta, c, ldc);
    beta = N(1);
    begin = next;
  } while (begin < end);
}

/// X = A⁻¹ · X for rows [begin, end) of a triangular A, and of X in column order. Halves are solved one after
/// the other, so that most of the work is products.
template <class N>
void solve_in_place(const View& a, std::int64_t begin, std::int64_t end, std::int64_t columns, N* x,
                    std::int64_t ldx) {
  constexpr std::int64_t small = 32;
  const std::int64_t rows = end - begin;
  if (rows <= 0) return;  // whatever the distance of the columns is then, nothing lies there
  const bool forward = a.above == 0;
  if (rows > small) {
    const std::int64_t middle = begin + (rows / 2 + small - 1) / small * small;
    const Block first = forward ? Block{begin, middle, 0, columns} : Block{middle, end, 0, columns};
    const Block second = forward ? Block{middle, end, 0, columns} : Block{begin, middle, 0, columns};
    solve_in_place(a, first.i, first.i_end, columns, x, ldx);
    // Of a narrow band only a corner between the halves is not zero: time and memory are those of the band.
    const Block corner = forward ? Block{second.i, std::min(second.i_end, first.i_end + a.below),
                                         std::max(first.i, second.i - a.below), first.i_end}
                                 : Block{std::max(second.i, first.i - a.above), second.i_end, first.i,
                                         std::min(first.i_end, second.i_end + a.above)};
    if (corner.rows() > 0) {
      std::vector<N> room;
      const auto factor = panel(a, corner, room);
      gemm(factor.trans, Trans::none, corner.rows(), columns, corner.columns(), N(-1), factor.data,
           factor.leading, x + corner.j, ldx, N(1), x + corner.i, ldx);
    }
    solve_in_place(a, second.i, second.i_end, columns, x, ldx);
    return;
  }
  N diagonal[small * small];
  read_block(a, {begin, end, begin, end}, diagonal);
  for (std::int64_t c = 0; c < columns; ++c) {
    N* const part = x + begin + c * ldx;
    for (std::int64_t count = 0; count < rows; ++count) {
      const std::int64_t j = forward ? count : rows - 1 - count;
      const N* const column = diagonal + j * rows;
      if (!a.unit) part[j] /= column[j];
      const N value = part[j];
      for (std::int64_t i = forward ? j + 1 : 0, i_end = forward ? rows : j; i < i_end; ++i)
        part[i] -= times(column[i], value);
    }
  }
}

/// Calls f with a number of the type to compute in; ends the operation where nothing can compute in it.
template <class F>
void with_number(Element type, F f) {
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
      wrong("nothing computes in this type");
  }
}

}  // namespace softgpu::libraries
