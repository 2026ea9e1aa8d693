// Where compiled code may access memory by itself: the device's arena (or the largest reservation), and the
// block's shared memory. What is known of an access for faults, and what is fetched before it is asked for.
#include <bit>

#include "softgpu/jit/emit/emitter.h"

namespace softgpu::jit {
namespace {

// Of a walk through memory: so many steps ahead of the one that is taken. A warp of a simple kernel takes
// some nanoseconds, memory a hundred.
constexpr unsigned steps_ahead = 16;
constexpr unsigned cache_line = 64;

}  // namespace

// [low, low + span) in the window, and low a multiple of `bytes`, a power of two; as an i1. Windows begin at
// multiples of window_alignment, so that turning the low bits to the top makes one comparison of both.
std::string Emitter::within_window(bool shared, const std::string& low, uint64_t span, uint32_t bytes) {
  const auto low_bits = static_cast<unsigned>(std::countr_zero(bytes));
  const std::string from = shared ? low : set("sub i64 " + low + ", %primary_begin");
  const std::string turned = low_bits == 0
                                 ? from
                                 : set("call i64 " + intrinsic("i64", "fshr.i64", "i64, i64, i64") + "(i64 " +
                                       from + ", i64 " + from + ", i64 " + number(low_bits) + ")");
  const std::string room =
      std::string(shared ? "%shared" : "%primary") + "_room." + number(span) + "." + number(low_bits);
  rooms_.insert(Room{room, shared, span, low_bits});
  return set("icmp ult i64 " + turned + ", " + room);
}

// How many places there are for each kind of access, once at the function's beginning: 0 where not even one
// fits.
void Emitter::emit_rooms() {
  for (const Room& room : rooms_) {
    const std::string more =
        set(std::string("add i64 ") + (room.shared ? "%shared_bytes" : "%primary_bytes") + ", 1");
    const std::string places = set("call i64 " + intrinsic("i64", "usub.sat.i64", "i64, i64") + "(i64 " +
                                   more + ", i64 " + number(room.span) + ")");
    const std::string up = set("add i64 " + places + ", " + number((uint64_t{1} << room.low_bits) - 1));
    line(room.name + " = lshr i64 " + up + ", " + number(room.low_bits));
  }
}

// For a memory fault that the processor raises.
void Emitter::mark_place() {
  line("store volatile i32 " + number(current_ + 1) + ", ptr %warp_pc");
  if (marked_mask_ == mask_) return;
  line("store volatile i32 " + mask_ + ", ptr %warp_mask");
  // An instruction behind a guard is not always executed.
  marked_mask_ = guarded_ ? "" : mask_;
}

// Kernels walk through memory, from warp to warp or from round to round of a loop: rows lie side by side, or
// as far apart as the last two. Memory that is not there is fetched without harm.
void Emitter::fetch_ahead(const std::string& pointer, uint32_t row_bytes) {
  std::string distance = number(steps_ahead * row_bytes);
  if (graph_.blocks[current_block_].in_loop) {
    const std::string last = fresh("%walked.");
    variables_ += "  " + last + " = alloca i64\n  store i64 0, ptr " + last + "\n";
    const std::string at = set("ptrtoint ptr " + pointer + " to i64");
    const std::string step = set("sub i64 " + at + ", " + set("load i64, ptr " + last));
    line("store i64 " + at + ", ptr " + last);
    distance = set("mul i64 " + step + ", " + number(steps_ahead));
  }
  std::string place = set("getelementptr i8, ptr " + pointer + ", i64 " + distance);
  for (uint32_t fetched = 0; fetched < row_bytes; fetched += cache_line) {
    if (fetched != 0) place = set("getelementptr i8, ptr " + place + ", i64 " + number(cache_line));
    line("call void " + intrinsic("void", "prefetch.p0", "ptr, i32, i32, i32") + "(ptr " + place +
         ", i32 0, i32 3, i32 1)");
  }
}

}  // namespace softgpu::jit
