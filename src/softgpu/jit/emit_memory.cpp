// Loads and stores. Checks are the interpreter's: what is not certainly inside the device's arena or the
// block's shared memory, and aligned, goes to the interpreter's handler, which knows the rest and raises
// faults.
#include <algorithm>

#include "softgpu/exec/memory_operand.h"
#include "softgpu/jit/emitter.h"
#include "softgpu/jit/opcode_name.h"

namespace softgpu::jit {
namespace {

// The same amount from lane to lane?
bool in_a_row(const Offsets& offsets, int64_t step) {
  for (uint32_t l = 0; l < kLanes; ++l) {
    if (offsets[l] != offsets[0] + l * step) return false;
  }
  return true;
}

}  // namespace

std::string Emitter::window_bytes(const Access& access) {
  return access.shared ? "%shared_bytes" : "%primary_bytes";
}
std::string Emitter::host_address(const Access& access, const std::string& address) {
  return set("inttoptr i64 " + (access.shared ? set("add i64 " + address + ", %shared_base") : address) +
             " to ptr");
}

bool Emitter::access_of(const LoweredInstruction& in, uint32_t base_operand, uint32_t bytes, uint32_t element,
                        Access& made) {
  namespace operand = memory_operand;
  const uint32_t how = in.in.aux & ((1u << operand::kBits) - 1), space = how & operand::kSpaceMask;
  if (in.ordered || space == operand::kLocal || (how & operand::kNoBase)) return false;
  made.shared = space == operand::kShared;
  made.bytes = bytes;
  made.element = element;
  Value base = use(in.in.op[base_operand]);
  const auto offset = static_cast<uint64_t>(in.in.immediate);
  if (how & operand::kAddress32) {
    if (offset != 0) base = shifted_sum(base, literal_value('w', offset), false);
    // Lanes that wrap around in 32 bits leave the window in 64.
    if (base.scalar && base.offsets) {
      made.address = scalar_value('x', set("zext i32 " + base.text + " to i64"));
      made.address.offsets = base.offsets;
      return made.shared;
    }
    made.address = extended(base, 'x', false);
    return true;
  }
  made.address = offset != 0 ? shifted_sum(base, literal_value('x', offset), false) : base;
  return true;
}

// A load's or store's code: `inside` where the access is certainly allowed, the handler otherwise.
bool Emitter::emit_memory(const LoweredInstruction& in) {
  const OpcodeName name(in.opcode);
  const std::string_view base = name.part(0);
  if (base == "cvta" && (name.has("shared") || name.has("shared::cta"))) {
    const Value shared = scalar_value('x', "%shared_base");
    define(in.in.op[0], shifted_sum(use(in.in.op[1]), shared, name.part(1) == "to"));
    return true;
  }
  const bool loads = base == "@load" || base == "@vload", stores = base == "@store" || base == "@vstore";
  if (!loads && !stores) return false;
  const bool several = base == "@vload" || base == "@vstore";
  const char size = name.last()[0];
  if (size == 'q') return false;
  const std::string_view type = name.part(1);
  const uint32_t element = loads ? static_cast<uint32_t>(std::stoul(std::string(type.substr(1)))) / 8
                                 : static_cast<uint32_t>(std::stoul(std::string(type)));
  const uint32_t count = several ? static_cast<uint32_t>(in.list.size()) : 1;
  const bool is_signed = loads && type[0] == 's';
  Access access;
  if (!access_of(in, loads && !several ? 1 : 0, element * count, element, access)) return false;
  const Value& address = access.address;
  const Form one{true}, all{false};
  const std::string memory_scalar = "i" + number(8 * element), memory_vector = "<32 x " + memory_scalar + ">";
  const uint32_t bytes = access.bytes;

  // Results are collected in variables, one for each way.
  const bool scalar_result = loads && address.uniform();
  std::vector<std::string> results;
  if (loads) {
    for (uint32_t k = 0; k < count; ++k) {
      results.push_back(fresh("%loaded."));
      variables_ += "  " + results.back() + " = alloca " + Form{scalar_result}.integer(size) + "\n";
    }
  }
  auto result = [&](uint32_t k, const std::string& text, bool scalar) {
    const std::string have = scalar ? memory_scalar : memory_vector;
    const std::string want = Form{scalar}.integer(size);
    std::string value = text;
    if (8 * element != 8 * lane_bytes(size))
      value = set((8 * element > 8 * lane_bytes(size) ? "trunc "
                   : is_signed                        ? "sext "
                                                      : "zext ") +
                  have + " " + text + " to " + want);
    line("store " + want + " " + value + ", ptr " + results[k]);
  };
  auto stored = [&](uint32_t k) {
    const Value value = several ? use(in.list[k]) : use(in.in.op[1]);
    return value;
  };
  auto narrowed = [&](const std::string& text, bool scalar) {
    if (element == lane_bytes(size)) return text;
    return set("trunc " + Form{scalar}.integer(size) + " " + text + " to " +
               (scalar ? memory_scalar : memory_vector));
  };
  const std::string fast = fresh("inside."), slow = fresh("checked."), after = fresh("accessed."),
                    begin = fresh("access.");
  const size_t way_begins = text_.size();
  if (guarded_) {
    line("br i1 " + set("icmp ne i32 " + mask_ + ", 0") + ", label %" + begin + ", label %" + after);
    label(begin);
  }
  // Shared memory has no unmapped holes, and an access outside of it is a fault, which the interpreter
  // raises.
  const bool direct = access.shared && address.scalar && !guarded_;
  if (!access.shared) mark_place();
  const std::string lanes = lanes_of_mask(mask_);
  auto pointer_at = [&](const std::string& base_pointer, int64_t offset) {
    return offset == 0 ? base_pointer
                       : set("getelementptr i8, ptr " + base_pointer + ", i64 " + number(offset));
  };
  auto allowed = [&](const std::string& low, uint64_t span) {
    return within_window(access.shared, low, span, bytes);
  };
  auto masked_load = [&](const std::string& pointer) {
    const std::string load = intrinsic(memory_vector, "masked.load.v32i" + number(8 * element) + ".p0",
                                       "ptr, i32, <32 x i1>, " + memory_vector);
    return set("call " + memory_vector + " " + load + "(ptr " + pointer + ", i32 " + number(element) +
               ", <32 x i1> " + lanes + ", " + memory_vector + " zeroinitializer)");
  };
  auto masked_store = [&](const std::string& value, const std::string& pointer) {
    const std::string store = intrinsic("void", "masked.store.v32i" + number(8 * element) + ".p0",
                                        memory_vector + ", ptr, i32, <32 x i1>");
    line("call void " + store + "(" + memory_vector + " " + value + ", ptr " + pointer + ", i32 " +
         number(element) + ", <32 x i1> " + lanes + ")");
  };
  // Each lane at an address of its own.
  auto gather = [&](const std::string& addresses, uint32_t k) {
    const std::string at =
        k == 0 ? addresses
               : set("add <32 x i64> " + addresses + ", " + all.literal('x', uint64_t{k} * element));
    const std::string pointers = set("inttoptr <32 x i64> " + at + " to <32 x ptr>");
    if (loads) {
      const std::string call = intrinsic(memory_vector, "masked.gather.v32i" + number(8 * element) + ".v32p0",
                                         "<32 x ptr>, i32, <32 x i1>, " + memory_vector);
      result(k,
             set("call " + memory_vector + " " + call + "(<32 x ptr> " + pointers + ", i32 " +
                 number(element) + ", <32 x i1> " + lanes + ", " + memory_vector + " zeroinitializer)"),
             false);
    } else {
      const std::string call = intrinsic("void", "masked.scatter.v32i" + number(8 * element) + ".v32p0",
                                         memory_vector + ", <32 x ptr>, i32, <32 x i1>");
      line("call void " + call + "(" + memory_vector + " " + narrowed(vector(stored(k)), false) +
           ", <32 x ptr> " + pointers + ", i32 " + number(element) + ", <32 x i1> " + lanes + ")");
    }
  };
  auto gather_all = [&](const std::string& addresses) {
    const std::string at =
        access.shared ? set("add <32 x i64> " + addresses + ", " + splat('x', "%shared_base")) : addresses;
    for (uint32_t k = 0; k < count; ++k) gather(at, k);
  };

  if (address.uniform()) {
    if (direct) {
      require_shared(in, access);
      line("br label %" + fast);
    } else {
      line("br i1 " + allowed(address.text, bytes) + ", label %" + fast + ", label %" + slow + ", !prof !1");
    }
    label(fast);
    const std::string pointer = host_address(access, address.text);
    for (uint32_t k = 0; k < count; ++k) {
      const std::string at = pointer_at(pointer, int64_t{k} * element);
      if (loads) {
        result(k, set("load " + memory_scalar + ", ptr " + at), true);
        continue;
      }
      // The last lane's value stays.
      const Value value = stored(k);
      std::string text = value.text;
      if (!value.uniform()) {
        const std::string zeros =
            set("call i32 " + intrinsic("i32", "ctlz.i32", "i32, i1") + "(i32 " + mask_ + ", i1 false)");
        text = set("extractelement " + all.integer(size) + " " + vector(value) + ", i32 " +
                   set("sub i32 31, " + zeros));
      }
      line("store " + memory_scalar + " " + narrowed(text, true) + ", ptr " + at);
    }
  } else if (address.scalar && std::all_of(address.offsets->begin(), address.offsets->end(),
                                           [&](int64_t o) { return o % int64_t{bytes} == 0; })) {
    const Offsets& offsets = *address.offsets;
    const auto [least, most] = std::minmax_element(offsets.begin(), offsets.end());
    const std::string low =
        *least == 0 ? address.text : set("add i64 " + address.text + ", " + number(*least));
    const auto span = static_cast<uint64_t>(*most - *least) + bytes;
    if (direct) {
      require_shared(in, access);
      line("br label %" + fast);
    } else {
      line("br i1 " + allowed(low, span) + ", label %" + fast + ", label %" + slow + ", !prof !1");
    }
    label(fast);
    const std::string pointer = host_address(access, low);
    const bool row = in_a_row(offsets, bytes);
    std::vector<int64_t> distinct(offsets.begin(), offsets.end());
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    const uint64_t elements = span / element;
    auto index = [](uint64_t i) { return "i32 " + std::to_string(i); };
    if (row && count == 1) {
      if (loads) {
        if (!access.shared) fetch_ahead(pointer, kLanes * bytes);
        result(0, masked_load(pointer), false);
      } else {
        masked_store(narrowed(vector(stored(0)), false), pointer);
      }
    } else if (elements > 128 || (!loads && (!row || count > 4)) ||
               (count == 1 && distinct.size() > 4 && elements > 64)) {
      gather_all(vector(address));
    } else {
      // All lanes are touched: where some do not run, only shared memory may be.
      const std::string whole = fresh("whole."), partial = fresh("partial.");
      if (!access.shared || !loads) {
        line("br i1 " + set("icmp eq i32 " + mask_ + ", -1") + ", label %" + whole + ", label %" + partial);
        label(partial);
        gather_all(vector(address));
        line("br label %" + after);
        label(whole);
      }
      if (!loads) {
        std::vector<std::string> parts;
        for (uint32_t k = 0; k < count; ++k) parts.push_back(narrowed(vector(stored(k)), false));
        std::string interleave;
        for (uint32_t l = 0; l < kLanes; ++l) {
          for (uint32_t k = 0; k < count; ++k)
            interleave += (interleave.empty() ? "" : ", ") + index(k * kLanes + l);
        }
        const std::string twice = "<64 x " + memory_scalar + ">";
        std::string all_parts = parts[0] + ", " + memory_vector + " " + parts[1], type = memory_vector;
        if (count == 4) {
          std::string counting;
          for (uint32_t l = 0; l < 64; ++l) counting += (l ? ", " : "") + index(l);
          auto joined = [&](uint32_t k) {
            return set("shufflevector " + memory_vector + " " + parts[k] + ", " + memory_vector + " " +
                       parts[k + 1] + ", <64 x i32> <" + counting + ">");
          };
          const std::string low_half = joined(0), high_half = joined(2);
          all_parts = low_half + ", " + twice + " " + high_half;
          type = twice;
        }
        const std::string total = std::to_string(kLanes * count);
        const std::string mixed =
            set("shufflevector " + type + " " + all_parts + ", <" + total + " x i32> <" + interleave + ">");
        line("store <" + total + " x " + memory_scalar + "> " + mixed + ", ptr " + pointer + ", align " +
             number(element));
      } else if (count == 1 && distinct.size() <= 4) {
        std::string blended;
        for (size_t d = 0; d < distinct.size(); ++d) {
          const std::string at = pointer_at(pointer, distinct[d] - *least);
          const std::string value = set("load " + memory_scalar + ", ptr " + at);
          const std::string first =
              set("insertelement " + memory_vector + " poison, " + memory_scalar + " " + value + ", i32 0");
          const std::string every = set("shufflevector " + memory_vector + " " + first + ", " +
                                        memory_vector + " poison, <32 x i32> zeroinitializer");
          if (d == 0) {
            blended = every;
            continue;
          }
          std::string choice;
          for (uint32_t l = 0; l < kLanes; ++l)
            choice += (l ? ", " : "") + index(offsets[l] == distinct[d] ? kLanes + l : l);
          blended = set("shufflevector " + memory_vector + " " + blended + ", " + memory_vector + " " +
                        every + ", <32 x i32> <" + choice + ">");
        }
        result(0, blended, false);
      } else {
        const std::string wide = "<" + std::to_string(elements) + " x " + memory_scalar + ">";
        const std::string read = set("load " + wide + ", ptr " + pointer + ", align " + number(element));
        for (uint32_t k = 0; k < count; ++k) {
          std::string choice;
          for (uint32_t l = 0; l < kLanes; ++l)
            choice += (l ? ", " : "") + index(static_cast<uint64_t>(offsets[l] - *least) / element + k);
          result(k,
                 set("shufflevector " + wide + " " + read + ", " + wide + " poison, <32 x i32> <" + choice +
                     ">"),
                 false);
        }
      }
    }
  } else {
    const std::string addresses = vector(address);
    const std::string first = set("extractelement <32 x i64> " + addresses + ", i32 0");
    Value row = scalar_value('x', first);
    auto steps = std::make_shared<Offsets>();
    for (uint32_t l = 0; l < kLanes; ++l) (*steps)[l] = int64_t{l} * bytes;
    row.offsets = steps;
    const std::string strays = mask_of_lanes(set("icmp ne <32 x i64> " + addresses + ", " + vector(row)));
    const std::string regular = set("icmp eq i32 " + set("and i32 " + strays + ", " + mask_) + ", 0");
    const std::string scattered = fresh("scattered."), gathers = fresh("gathers.");
    if (count == 1) {
      line("br i1 " + set("and i1 " + regular + ", " + allowed(first, uint64_t{bytes} * kLanes)) +
           ", label %" + fast + ", label %" + scattered);
      label(fast);
      const std::string pointer = host_address(access, first);
      if (loads) {
        result(0, masked_load(pointer), false);
      } else {
        masked_store(narrowed(vector(stored(0)), false), pointer);
      }
      line("br label %" + after);
      label(scattered);
    }
    const std::string from =
        access.shared ? addresses : set("sub <32 x i64> " + addresses + ", " + splat('x', "%primary_begin"));
    const std::string room = set("call i64 " + intrinsic("i64", "usub.sat.i64", "i64, i64") + "(i64 " +
                                 window_bytes(access) + ", i64 " + number(bytes - 1) + ")");
    std::string fine = mask_of_lanes(set("icmp ult <32 x i64> " + from + ", " + splat('x', room)));
    if (bytes > 1) {
      const std::string low_bits = set("and <32 x i64> " + addresses + ", " + all.literal('x', bytes - 1));
      fine = set("and i32 " + fine + ", " +
                 mask_of_lanes(set("icmp eq <32 x i64> " + low_bits + ", zeroinitializer")));
    }
    const std::string wrong = set("and i32 " + mask_ + ", " + set("xor i32 " + fine + ", -1"));
    line("br i1 " + set("icmp eq i32 " + wrong + ", 0") + ", label %" + gathers + ", label %" + slow +
         ", !prof !1");
    label(gathers);
    gather_all(addresses);
  }
  line("br label %" + after);

  // The handler.
  const bool has_slow_way = text_.find(", label %" + slow + ",", way_begins) != std::string::npos;
  if (has_slow_way) {
    label(slow);
    call_handler(in);
  }
  for (uint32_t k = 0; has_slow_way && loads && k < count; ++k) {
    const uint32_t place = several ? tier_.list_place(k) : tier_.operand_place(0);
    std::string text;
    if (scalar_result) {
      const std::string lane = set("zext i32 " + first_lane(mask_) + " to i64");
      const std::string at =
          set("getelementptr " + one.integer(size) + ", ptr " + home_pointer(place) + ", i64 " + lane);
      text = set("load " + one.integer(size) + ", ptr " + at);
    } else {
      text = set("load " + all.integer(size) + ", ptr " + home_pointer(place));
    }
    line("store " + Form{scalar_result}.integer(size) + " " + text + ", ptr " + results[k]);
  }
  if (has_slow_way) line("br label %" + after);
  label(after);
  for (uint32_t k = 0; loads && k < count; ++k) {
    const std::string text = set("load " + Form{scalar_result}.integer(size) + ", ptr " + results[k]);
    define(several ? in.list[k] : in.in.op[0],
           scalar_result ? scalar_value(size, text) : vector_value(size, text));
  }
  return true;
}

}  // namespace softgpu::jit
