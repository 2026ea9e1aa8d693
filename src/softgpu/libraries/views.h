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

/// None: it has to be copied.
template <class N>
std::optional<Panel<N>> as_it_lies(const View& view, const Block& block) {
  if (view.type != element_of<N> || view.packed != Packed::no || view.unit ||
      view.structure == Structure::hermitian || !is_stored(view, block))
    return std::nullopt;
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

/// Copies a block into `out`, in column order without gaps.
template <class N>
void read_block(const View& view, const Block& block, N* out) {
  with_type(view.type, [&](auto type) {
    using T = decltype(type);
    const T* const from = reinterpret_cast<const T*>(view.address);
    const auto stored_at = [&](std::int64_t i, std::int64_t j) {
      return to_number<N>(from[offset_of(view, i, j)]);
    };
    for (std::int64_t j = block.j; j < block.j_end; ++j, out += block.rows()) {
      // Above what is stored, what is stored, below it.
      const std::int64_t begin = std::clamp(j - view.above, block.i, block.i_end);
      const std::int64_t end = std::clamp(j + view.below + 1, begin, block.i_end);
      const auto fill = [&](std::int64_t i, std::int64_t i_end) {
        for (; i < i_end; ++i) {
          N value{};
          if (view.structure != Structure::zero && is_stored(view, j, i)) {
            value = stored_at(j, i);
            if (view.structure == Structure::hermitian) value = conjugate(value);
          }
          out[i - block.i] = value;
        }
      };
      fill(block.i, begin);
      if (view.packed == Packed::no) {
        const T* const column = from + j * view.column;
        for (std::int64_t i = begin; i < end; ++i) out[i - block.i] = to_number<N>(column[i * view.row]);
      } else {
        for (std::int64_t i = begin; i < end; ++i) out[i - block.i] = stored_at(i, j);
      }
      fill(end, block.i_end);
      if (j >= block.i && j < block.i_end) {
        N& diagonal = out[j - block.i];
        if (view.unit) diagonal = N(1);
        if (view.structure == Structure::hermitian) diagonal = real_only(diagonal);
      }
      if (view.conjugated) {
        for (std::int64_t i = 0; i < block.rows(); ++i) out[i] = conjugate(out[i]);
      }
    }
  });
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
/// Terms that are not stored are left out; where not all of a factor is stored, it is read in pieces.
template <class N>
void add_product(N alpha, const View& a, const View& b, const Block& of_c, std::int64_t terms, N beta, N* c,
                 std::int64_t ldc) {
  static thread_local std::vector<N> room_a, room_b;
  std::int64_t begin = 0, end = terms;
  if (a.structure == Structure::zero) {
    begin = std::max(begin, of_c.i - a.below);
    end = std::min(end, of_c.i_end + a.above);
  }
  if (b.structure == Structure::zero) {
    begin = std::max(begin, of_c.j - b.above);
    end = std::min(end, of_c.j_end + b.below);
  }
  const bool whole = as_it_lies<N>(a, {of_c.i, of_c.i_end, begin, std::max(begin, end)}).has_value() &&
                     as_it_lies<N>(b, {begin, std::max(begin, end), of_c.j, of_c.j_end}).has_value();
  const std::int64_t step = whole ? std::max<std::int64_t>(end - begin, 1) : 512;
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

/// X = A⁻¹ · X for a triangular A of order m; X is in column order.
template <class N>
void solve_in_place(const View& a, std::int64_t m, std::int64_t columns, N* x, std::int64_t ldx) {
  constexpr std::int64_t step = 64;
  std::vector<N> diagonal;
  const bool forward = a.above == 0;
  const std::int64_t blocks = (m + step - 1) / step;
  for (std::int64_t number = 0; number < blocks; ++number) {
    const std::int64_t begin = (forward ? number : blocks - 1 - number) * step;
    const std::int64_t end = std::min(m, begin + step), rows = end - begin;
    // What is solved already: the terms before this block, or those behind it.
    const std::int64_t first = forward ? 0 : end, solved = forward ? begin : m - end;
    if (solved > 0) {
      View known = a;
      if (known.packed == Packed::no) {
        // A's rows with the solved columns; the diagonals that are stored lie elsewhere by as much.
        known.address += static_cast<std::uint64_t>(first * a.column) * gpupool::operations::bytes_of(a.type);
        known.below += first;
        known.above -= first;
        known.unit = false;
        add_product(N(-1), known, room_view(x + first, ldx, element_of<N>), {begin, end, 0, columns}, solved,
                    N(1), x + begin, ldx);
      } else {
        std::vector<N> room(static_cast<std::size_t>(rows * solved));
        read_block(a, {begin, end, first, first + solved}, room.data());
        gemm(Trans::none, Trans::none, rows, columns, solved, N(-1), room.data(), rows, x + first, ldx, N(1),
             x + begin, ldx);
      }
    }
    diagonal.resize(static_cast<std::size_t>(rows * rows));
    read_block(a, {begin, end, begin, end}, diagonal.data());
    for (std::int64_t c = 0; c < columns; ++c) {
      N* const part = x + begin + c * ldx;
      for (std::int64_t count = 0; count < rows; ++count) {
        const std::int64_t j = forward ? count : rows - 1 - count;
        const N* const column = diagonal.data() + j * rows;
        if (!a.unit) part[j] /= column[j];
        const N value = part[j];
        for (std::int64_t i = forward ? j + 1 : 0, i_end = forward ? rows : j; i < i_end; ++i)
          part[i] -= times(column[i], value);
      }
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
