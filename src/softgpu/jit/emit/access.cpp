// Accesses by how the lanes' addresses lie to each other: all at one, at distances known when code is made,
// or anywhere.
#include <algorithm>

#include "softgpu/jit/emit/emitter.h"

namespace softgpu::jit {
namespace {

// The same amount from lane to lane?
bool in_a_row(const Offsets& offsets, int64_t step) {
  for (uint32_t l = 0; l < warp_lanes; ++l) {
    if (offsets[l] != offsets[0] + l * step) return false;
  }
  return true;
}

std::string element_index(uint64_t i) {
  return "i32 " + std::to_string(i);
}

}  // namespace

std::string Emitter::pointer_at(const std::string& pointer, int64_t offset) {
  return offset == 0 ? pointer : set("getelementptr i8, ptr " + pointer + ", i64 " + number(offset));
}

// Goes on where the access, [low, low + span) for all lanes together, is allowed.
void Emitter::begin_fast_way(const LoweredInstruction& in, const Memory& access, const std::string& low,
                             uint64_t span) {
  // Shared memory has no unmapped holes, and an access outside of it is a fault, which the interpreter
  // raises.
  if (access.shared && access.address.scalar && !guarded_) {
    require_shared(in, access);
    line("br label %" + access.fast);
  } else {
    line("br i1 " + within_window(access.shared, low, span, access.bytes) + ", label %" + access.fast +
         ", label %" + access.slow + ", !prof !1");
  }
  label(access.fast);
}

// One row of elements, a lane's beside the last lane's.
void Emitter::emit_row(const LoweredInstruction& in, const Memory& access, const std::string& pointer) {
  const std::string bits = number(8 * access.element);
  if (access.loads) {
    const std::string load = intrinsic(access.memory_vector, "masked.load.v32i" + bits + ".p0",
                                       "ptr, i32, <32 x i1>, " + access.memory_vector);
    store_result(access, 0,
                 set("call " + access.memory_vector + " " + load + "(ptr " + pointer + ", i32 " +
                     number(access.element) + ", <32 x i1> " + access.lanes + ", " + access.memory_vector +
                     " zeroinitializer)"),
                 false);
    return;
  }
  const std::string value = narrowed(access, vector(stored_value(in, access, 0)), false);
  const std::string store =
      intrinsic("void", "masked.store.v32i" + bits + ".p0", access.memory_vector + ", ptr, i32, <32 x i1>");
  line("call void " + store + "(" + access.memory_vector + " " + value + ", ptr " + pointer + ", i32 " +
       number(access.element) + ", <32 x i1> " + access.lanes + ")");
}

// Each lane's k-th element at an address of its own.
void Emitter::emit_gather(const LoweredInstruction& in, const Memory& access, const std::string& addresses,
                          uint32_t k) {
  const Form all{false};
  const std::string bits = number(8 * access.element);
  const std::string at =
      k == 0 ? addresses
             : set("add <32 x i64> " + addresses + ", " + all.literal('x', uint64_t{k} * access.element));
  const std::string pointers = set("inttoptr <32 x i64> " + at + " to <32 x ptr>");
  if (access.loads) {
    const std::string call = intrinsic(access.memory_vector, "masked.gather.v32i" + bits + ".v32p0",
                                       "<32 x ptr>, i32, <32 x i1>, " + access.memory_vector);
    store_result(access, k,
                 set("call " + access.memory_vector + " " + call + "(<32 x ptr> " + pointers + ", i32 " +
                     number(access.element) + ", <32 x i1> " + access.lanes + ", " + access.memory_vector +
                     " zeroinitializer)"),
                 false);
    return;
  }
  const std::string call = intrinsic("void", "masked.scatter.v32i" + bits + ".v32p0",
                                     access.memory_vector + ", <32 x ptr>, i32, <32 x i1>");
  line("call void " + call + "(" + access.memory_vector + " " +
       narrowed(access, vector(stored_value(in, access, k)), false) + ", <32 x ptr> " + pointers + ", i32 " +
       number(access.element) + ", <32 x i1> " + access.lanes + ")");
}

void Emitter::emit_gathers(const LoweredInstruction& in, const Memory& access, const std::string& addresses) {
  const std::string at =
      access.shared ? set("add <32 x i64> " + addresses + ", " + splat('x', "%shared_base")) : addresses;
  for (uint32_t k = 0; k < access.count; ++k) emit_gather(in, access, at, k);
}

// All lanes at one address.
void Emitter::emit_uniform_access(const LoweredInstruction& in, const Memory& access) {
  const Form all{false};
  begin_fast_way(in, access, access.address.text, access.bytes);
  const std::string pointer = host_address(access, access.address.text);
  for (uint32_t k = 0; k < access.count; ++k) {
    const std::string at = pointer_at(pointer, int64_t{k} * access.element);
    if (access.loads) {
      store_result(access, k, set("load " + access.memory_scalar + ", ptr " + at), true);
      continue;
    }
    // The last lane's value stays.
    const Value value = stored_value(in, access, k);
    std::string text = value.text;
    if (!value.uniform()) {
      const std::string zeros =
          set("call i32 " + intrinsic("i32", "ctlz.i32", "i32, i1") + "(i32 " + mask_ + ", i1 false)");
      text = set("extractelement " + all.integer(access.size) + " " + vector(value) + ", i32 " +
                 set("sub i32 31, " + zeros));
    }
    line("store " + access.memory_scalar + " " + narrowed(access, text, true) + ", ptr " + at);
  }
}

// A scalar address and distances that are known: a row, or a piece of memory whose elements change places.
void Emitter::emit_shaped_access(const LoweredInstruction& in, const Memory& access) {
  const Offsets& offsets = *access.address.offsets;
  const auto [least, most] = std::minmax_element(offsets.begin(), offsets.end());
  const std::string low =
      *least == 0 ? access.address.text : set("add i64 " + access.address.text + ", " + number(*least));
  const auto span = static_cast<uint64_t>(*most - *least) + access.bytes;
  begin_fast_way(in, access, low, span);
  const std::string pointer = host_address(access, low);
  const bool row = in_a_row(offsets, access.bytes);
  std::vector<int64_t> distinct(offsets.begin(), offsets.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const uint64_t elements = span / access.element;
  if (row && access.count == 1) {
    if (access.loads && !access.shared) fetch_ahead(pointer, warp_lanes * access.bytes);
    return emit_row(in, access, pointer);
  }
  if (elements > 128 || (!access.loads && (!row || access.count > 4)) ||
      (access.count == 1 && distinct.size() > 4 && elements > 64)) {
    return emit_gathers(in, access, vector(access.address));
  }
  // All lanes are touched: where some do not run, only shared memory may be.
  const std::string whole = fresh("whole."), partial = fresh("partial.");
  if (!access.shared || !access.loads) {
    line("br i1 " + set("icmp eq i32 " + mask_ + ", -1") + ", label %" + whole + ", label %" + partial);
    label(partial);
    emit_gathers(in, access, vector(access.address));
    line("br label %" + access.after);
    label(whole);
  }
  if (!access.loads) return emit_interleaved_store(in, access, pointer);
  if (access.count == 1 && distinct.size() <= 4) return emit_blended_load(access, pointer, distinct);
  const std::string wide = "<" + std::to_string(elements) + " x " + access.memory_scalar + ">";
  const std::string read = set("load " + wide + ", ptr " + pointer + ", align " + number(access.element));
  for (uint32_t k = 0; k < access.count; ++k) {
    std::string choice;
    for (uint32_t l = 0; l < warp_lanes; ++l)
      choice +=
          (l ? ", " : "") + element_index(static_cast<uint64_t>(offsets[l] - *least) / access.element + k);
    store_result(
        access, k,
        set("shufflevector " + wide + " " + read + ", " + wide + " poison, <32 x i32> <" + choice + ">"),
        false);
  }
}

// Two or four elements of each lane side by side.
void Emitter::emit_interleaved_store(const LoweredInstruction& in, const Memory& access,
                                     const std::string& pointer) {
  std::vector<std::string> parts;
  for (uint32_t k = 0; k < access.count; ++k)
    parts.push_back(narrowed(access, vector(stored_value(in, access, k)), false));
  std::string interleave;
  for (uint32_t l = 0; l < warp_lanes; ++l) {
    for (uint32_t k = 0; k < access.count; ++k)
      interleave += (interleave.empty() ? "" : ", ") + element_index(k * warp_lanes + l);
  }
  const std::string twice = "<64 x " + access.memory_scalar + ">";
  std::string all_parts = parts[0] + ", " + access.memory_vector + " " + parts[1],
              type = access.memory_vector;
  if (access.count == 4) {
    std::string counting;
    for (uint32_t l = 0; l < 64; ++l) counting += (l ? ", " : "") + element_index(l);
    auto joined = [&](uint32_t k) {
      return set("shufflevector " + access.memory_vector + " " + parts[k] + ", " + access.memory_vector +
                 " " + parts[k + 1] + ", <64 x i32> <" + counting + ">");
    };
    const std::string low_half = joined(0), high_half = joined(2);
    all_parts = low_half + ", " + twice + " " + high_half;
    type = twice;
  }
  const std::string total = std::to_string(warp_lanes * access.count);
  const std::string mixed =
      set("shufflevector " + type + " " + all_parts + ", <" + total + " x i32> <" + interleave + ">");
  line("store <" + total + " x " + access.memory_scalar + "> " + mixed + ", ptr " + pointer + ", align " +
       number(access.element));
}

// A few addresses, each of several lanes.
void Emitter::emit_blended_load(const Memory& access, const std::string& pointer,
                                const std::vector<int64_t>& distinct) {
  const std::string& type = access.memory_vector;
  std::string blended;
  for (size_t d = 0; d < distinct.size(); ++d) {
    const std::string at = pointer_at(pointer, distinct[d] - distinct[0]);
    const std::string value = set("load " + access.memory_scalar + ", ptr " + at);
    const std::string first =
        set("insertelement " + type + " poison, " + access.memory_scalar + " " + value + ", i32 0");
    const std::string every =
        set("shufflevector " + type + " " + first + ", " + type + " poison, <32 x i32> zeroinitializer");
    if (d == 0) {
      blended = every;
      continue;
    }
    std::string choice;
    for (uint32_t l = 0; l < warp_lanes; ++l)
      choice +=
          (l ? ", " : "") + element_index((*access.address.offsets)[l] == distinct[d] ? warp_lanes + l : l);
    blended = set("shufflevector " + type + " " + blended + ", " + type + " " + every + ", <32 x i32> <" +
                  choice + ">");
  }
  store_result(access, 0, blended, false);
}

// How many lanes' addresses are a row, if any are: a block less than a warp wide has a row of its own for
// each y.
uint32_t Emitter::row_lanes() const {
  return block_.x == 8 || block_.x == 16 ? block_.x : warp_lanes;
}

// Rows of `lanes` lanes each, from `pointers` on.
void Emitter::emit_rows(const LoweredInstruction& in, const Memory& access,
                        const std::vector<std::string>& pointers, uint32_t lanes) {
  if (lanes == warp_lanes) return emit_row(in, access, pointers[0]);
  const std::string type = "<" + number(lanes) + " x " + access.memory_scalar + ">";
  const std::string mask = "<" + number(lanes) + " x i1>";
  const std::string suffix = ".v" + number(lanes) + access.memory_scalar + ".p0";
  const std::string stored = access.loads ? "" : narrowed(access, vector(stored_value(in, access, 0)), false);
  std::vector<std::string> loaded;
  for (size_t r = 0; r < pointers.size(); ++r) {
    std::string choice;
    for (uint32_t l = 0; l < lanes; ++l) choice += (l ? ", " : "") + element_index(r * lanes + l);
    const auto of_row = [&](const std::string& whole, const std::string& text) {
      return set("shufflevector " + whole + " " + text + ", " + whole + " poison, <" + number(lanes) +
                 " x i32> <" + choice + ">");
    };
    const std::string run = of_row("<32 x i1>", access.lanes);
    if (access.loads) {
      const std::string load = intrinsic(type, "masked.load" + suffix, "ptr, i32, " + mask + ", " + type);
      loaded.push_back(set("call " + type + " " + load + "(ptr " + pointers[r] + ", i32 " +
                           number(access.element) + ", " + mask + " " + run + ", " + type +
                           " zeroinitializer)"));
    } else {
      const std::string store = intrinsic("void", "masked.store" + suffix, type + ", ptr, i32, " + mask);
      line("call void " + store + "(" + type + " " + of_row(access.memory_vector, stored) + ", ptr " +
           pointers[r] + ", i32 " + number(access.element) + ", " + mask + " " + run + ")");
    }
  }
  if (access.loads) store_result(access, 0, joined(loaded, lanes, access.memory_scalar), false);
}

// Vectors of `lanes` elements each, one after the other.
std::string Emitter::joined(std::vector<std::string> parts, uint32_t lanes, const std::string& element) {
  for (; parts.size() > 1; lanes *= 2) {
    const std::string type = "<" + number(lanes) + " x " + element + ">";
    std::string choice;
    for (uint32_t l = 0; l < 2 * lanes; ++l) choice += (l ? ", " : "") + element_index(l);
    for (size_t p = 0; p < parts.size() / 2; ++p) {
      parts[p] = set("shufflevector " + type + " " + parts[2 * p] + ", " + type + " " + parts[2 * p + 1] +
                     ", <" + number(2 * lanes) + " x i32> <" + choice + ">");
    }
    parts.resize(parts.size() / 2);
  }
  return parts[0];
}

// Addresses that are not known before the code runs: often they are rows nevertheless.
void Emitter::emit_scattered_access(const LoweredInstruction& in, const Memory& access) {
  const std::string addresses = vector(access.address);
  if (access.count == 1) {
    const uint32_t lanes = row_lanes();
    std::string begins, steps;
    for (uint32_t l = 0; l < warp_lanes; ++l) {
      begins += (l ? ", " : "") + element_index(l / lanes * lanes);
      steps += (l ? ", i64 " : "i64 ") + number(uint64_t{l % lanes} * access.bytes);
    }
    const std::string begin =
        set("shufflevector <32 x i64> " + addresses + ", <32 x i64> poison, <32 x i32> <" + begins + ">");
    const std::string rows = set("add <32 x i64> " + begin + ", <" + steps + ">");
    const std::string strays = mask_of_lanes(set("icmp ne <32 x i64> " + addresses + ", " + rows));
    std::string good = set("icmp eq i32 " + set("and i32 " + strays + ", " + mask_) + ", 0");
    std::vector<std::string> firsts;
    for (uint32_t l = 0; l < warp_lanes; l += lanes) {
      firsts.push_back(set("extractelement <32 x i64> " + addresses + ", i32 " + number(l)));
      const std::string inside =
          within_window(access.shared, firsts.back(), uint64_t{access.bytes} * lanes, access.bytes);
      good = set("and i1 " + good + ", " + inside);
    }
    const std::string scattered = fresh("scattered.");
    line("br i1 " + good + ", label %" + access.fast + ", label %" + scattered);
    label(access.fast);
    std::vector<std::string> pointers;
    pointers.reserve(firsts.size());
    for (const std::string& first : firsts) pointers.push_back(host_address(access, first));
    emit_rows(in, access, pointers, lanes);
    line("br label %" + access.after);
    label(scattered);
  }
  emit_checked_gathers(in, access, addresses);
}

void Emitter::emit_checked_gathers(const LoweredInstruction& in, const Memory& access,
                                   const std::string& addresses) {
  const Form all{false};
  const std::string gathers = fresh("gathers.");
  const std::string from =
      access.shared ? addresses : set("sub <32 x i64> " + addresses + ", " + splat('x', "%primary_begin"));
  const std::string room = set("call i64 " + intrinsic("i64", "usub.sat.i64", "i64, i64") + "(i64 " +
                               window_bytes(access) + ", i64 " + number(access.bytes - 1) + ")");
  std::string fine = mask_of_lanes(set("icmp ult <32 x i64> " + from + ", " + splat('x', room)));
  if (access.bytes > 1) {
    const std::string low_bits =
        set("and <32 x i64> " + addresses + ", " + all.literal('x', access.bytes - 1));
    fine = set("and i32 " + fine + ", " +
               mask_of_lanes(set("icmp eq <32 x i64> " + low_bits + ", zeroinitializer")));
  }
  const std::string wrong = set("and i32 " + mask_ + ", " + set("xor i32 " + fine + ", -1"));
  line("br i1 " + set("icmp eq i32 " + wrong + ", 0") + ", label %" + gathers + ", label %" + access.slow +
       ", !prof !1");
  label(gathers);
  emit_gathers(in, access, addresses);
}

}  // namespace softgpu::jit
