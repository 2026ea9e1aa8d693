#include "softgpu/libraries/views.h"

namespace softgpu::libraries {
namespace {

/// Sizes of more than this are mistakes: no device memory holds them.
constexpr std::int64_t most = std::int64_t{1} << 40;

struct Extent {
  __int128 first, last;
};

/// The offsets of the first and the last stored element. Offsets grow evenly along rows and columns, so both
/// lie at a corner of what is stored.
Extent extent(const View& view, std::int64_t rows, std::int64_t columns) {
  Extent result{0, -1};
  bool any = false;
  const std::int64_t end = std::min(columns, rows + view.above);
  for (const std::int64_t j : {std::int64_t{0}, end - 1, view.above, rows - 1 - view.below}) {
    if (j < 0 || j >= end) continue;
    for (const std::int64_t i :
         {std::max<std::int64_t>(0, j - view.above), std::min(rows - 1, j + view.below)}) {
      if (i < 0 || i >= rows || !is_stored(view, i, j)) continue;
      const __int128 offset = static_cast<__int128>(i) * view.row + static_cast<__int128>(j) * view.column;
      result.first = any ? std::min(result.first, offset) : offset;
      result.last = any ? std::max(result.last, offset) : offset;
      any = true;
    }
  }
  return result;
}

}  // namespace

View located(const View& view, std::int64_t rows, std::int64_t columns, std::int64_t batch,
             const Memory& memory, const char* what) {
  const std::size_t bytes = gpupool::operations::bytes_of(view.type);
  const bool fits = bytes != 0 && rows >= 0 && columns >= 0 && rows <= most && columns <= most &&
                    view.below >= 0 && view.above >= 0 && view.below <= gpupool::operations::all_diagonals &&
                    view.above <= gpupool::operations::all_diagonals && view.packed <= Packed::lower &&
                    view.structure <= Structure::hermitian;
  if (!fits) wrong(std::string(what) + " is no matrix");
  View result = view;
  std::uint64_t address = view.address;
  std::int64_t offset = view.offset, by_batch = 0;
  if (view.pointers) {
    address = *memory.at<std::uint64_t>(view.address + static_cast<std::uint64_t>(batch) * 8, 1, what);
  } else if (__builtin_mul_overflow(batch, view.stride, &by_batch) ||
             __builtin_add_overflow(offset, by_batch, &offset)) {
    wrong(std::string(what) + ": batches lie too far apart");
  }
  result.address = address + static_cast<std::uint64_t>(offset) * bytes;
  if (rows == 0 || columns == 0) return result;
  // What is not stored is read where it is mirrored, which only a square has.
  if (view.structure != Structure::zero && rows != columns) wrong(std::string(what) + " is not square");
  Extent at = extent(view, rows, columns);
  if (view.packed != Packed::no) {
    // One triangle is there, and this is the one that is said to be.
    const bool upper = (view.packed == Packed::upper) != view.turned;
    if (rows != columns || view.column != columns || rows > (std::int64_t{1} << 31) ||
        (upper ? view.below : view.above) != 0)
      wrong(std::string(what) + " is no packed triangle");
    at = {0, static_cast<__int128>(rows) * (rows + 1) / 2 - 1};
  }
  if (at.last < at.first) return result;
  if (at.first < -(__int128{1} << 60) || at.last > (__int128{1} << 60))
    throw Failure(softgpu::Fault::illegal_address, std::string(what) + " has no end");
  memory.check(result.address + static_cast<std::uint64_t>(static_cast<std::int64_t>(at.first)) * bytes,
               static_cast<std::uint64_t>(at.last - at.first) + 1, bytes, what);
  return result;
}

void check_apart(const View& view, std::int64_t rows, std::int64_t columns, const char* what) {
  if (view.packed != Packed::no) return;
  const auto size = [](std::int64_t step) {
    return step < 0 ? -static_cast<__int128>(step) : static_cast<__int128>(step);
  };
  const __int128 row = size(view.row), column = size(view.column);
  const bool by_columns = (rows <= 1 || row >= 1) && (columns <= 1 || column >= rows * row);
  const bool by_rows = (columns <= 1 || column >= 1) && (rows <= 1 || row >= columns * column);
  if (!by_columns && !by_rows) wrong(std::string(what) + ": elements overlap");
}

}  // namespace softgpu::libraries
