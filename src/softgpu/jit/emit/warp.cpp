// What lanes of a warp do together.
#include "softgpu/jit/emit/emitter.h"
#include "softgpu/jit/emit/opcode_name.h"

namespace softgpu::jit {

bool Emitter::emit_warp(const LoweredInstruction& in) {
  if (in.opcode == "activemask.b32") {
    define(in.in.op[0], scalar_value('w', mask_));
    return true;
  }
  if (in.opcode == "@nothing" || in.opcode == "pmevent" || in.opcode.starts_with("griddepcontrol."))
    return true;
  return false;
}

// Lanes of the member mask that are elsewhere: the interpreter brings them together. Else the handler, which
// finds all of them here, or code of its own.
void Emitter::emit_converge(const LoweredInstruction& in) {
  const OpcodeName name(in.opcode);
  const std::string_view base = name.part(0);
  const std::string ended = set("load i32, ptr %exited");
  const std::string live =
      set("and i32 " + set("load i32, ptr %live") + ", " + set("xor i32 " + ended + ", -1"));
  // The member mask is the last register operand; instructions for the whole warp have none.
  const bool has_members = base == "shfl" || base == "vote" || base == "match" || base == "redux" ||
                           base == "elect" || base == "bar";
  std::string members = "-1";
  if (has_members) {
    const Value given = use(in.in.op[in.defs + in.uses - 1]);
    if (given.uniform()) {
      members = given.text;
    } else {
      const std::string all = vector(given);
      members = set("extractelement <32 x i32> " + all + ", i32 " + first_lane(mask_));
      const std::string others = mask_of_lanes(set("icmp ne <32 x i32> " + all + ", " + splat('w', members)));
      require(set("icmp eq i32 " + set("and i32 " + others + ", " + mask_) + ", 0"));
    }
  }
  const std::string away =
      set("and i32 " + set("and i32 " + members + ", " + live) + ", " + set("xor i32 " + mask_ + ", -1"));
  require(set("icmp eq i32 " + away + ", 0"));
  if (base == "bar") return;
  if (base == "vote") {
    const std::string_view mode = name.has("ballot") ? "ballot"
                                  : name.has("all")  ? "all"
                                  : name.has("any")  ? "any"
                                                     : "uni";
    const std::string lanes = set("and i32 " + mask_ + ", " + members);
    const std::string yes = set("and i32 " + predicate_mask(use(in.in.op[1])) + ", " + lanes);
    if (mode == "ballot") return define(in.in.op[0], scalar_value('w', yes));
    const std::string all = set("icmp eq i32 " + yes + ", " + lanes),
                      none = set("icmp eq i32 " + yes + ", 0");
    return define(in.in.op[0], scalar_value('p', mode == "all"   ? all
                                                 : mode == "any" ? set("xor i1 " + none + ", true")
                                                                 : set("or i1 " + all + ", " + none)));
  }
  if (base == "shfl") return emit_shuffle(in, name.part(2));
  emit_call(in);
}

void Emitter::emit_shuffle(const LoweredInstruction& in, std::string_view mode) {
  const Value b = use(in.in.op[3]), c = use(in.in.op[4]);
  const bool all_lanes = c.uniform() && c.literal && (*c.literal & 0x1f1f) == 31;
  if (mode == "idx" && b.uniform() && all_lanes) {
    const std::string lane = set("and i32 " + b.text + ", 31");
    const std::string all = vector(use(in.in.op[2]));
    define(in.in.op[0], scalar_value('w', set("extractelement <32 x i32> " + all + ", i32 " + lane)));
    define(in.in.op[1], scalar_value('p', "true"));
  } else if (b.uniform() && b.literal && c.uniform() && c.literal) {
    emit_known_shuffle(in, mode);
  } else {
    emit_shuffle_in_memory(in, mode);
  }
}

// A shuffle whose pattern is known when code is made.
void Emitter::emit_known_shuffle(const LoweredInstruction& in, std::string_view mode) {
  const Value a = use(in.in.op[2]), b = use(in.in.op[3]), c = use(in.in.op[4]);
  std::string from;
  uint32_t valid = 0;
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    const auto value = static_cast<uint32_t>(*b.literal) & 31, clamp = static_cast<uint32_t>(*c.literal) & 31,
               segment = static_cast<uint32_t>(*c.literal) >> 8 & 31;
    const uint32_t first = lane & segment, last = first | (clamp & ~segment);
    const uint32_t wanted = mode == "up"     ? lane - value
                            : mode == "down" ? lane + value
                            : mode == "bfly" ? lane ^ value
                                             : first | (value & ~segment);
    const bool in_range =
        mode == "up" ? static_cast<int32_t>(wanted) >= static_cast<int32_t>(last) : wanted <= last;
    from += (lane ? ", i32 " : "i32 ") + std::to_string((in_range ? wanted : lane) & 31);
    valid |= in_range ? uint32_t{1} << lane : 0;
  }
  const std::string all = vector(a);
  define(in.in.op[0], vector_value('w', set("shufflevector <32 x i32> " + all +
                                            ", <32 x i32> poison, <32 x i32> <" + from + ">")));
  define(in.in.op[1], valid == full_mask ? scalar_value('p', "true")
                                         : vector_value('p', std::to_string(static_cast<int32_t>(valid))));
}

// Any other shuffle: the lanes' values are written side by side. If all lanes read at the same distance, that
// is one load at another address; else each lane reads at its own.
void Emitter::emit_shuffle_in_memory(const LoweredInstruction& in, std::string_view mode) {
  const std::string type = "<32 x i32>";
  const auto of_all = [](uint32_t number) { return Form{false}.literal('w', number); };
  const auto apply = [&](const char* operation, const std::string& x, const std::string& y) {
    return set(operation + type + " " + x + ", " + y);
  };
  exchanges_ = true;
  std::string lane;
  for (uint32_t l = 0; l < warp_lanes; ++l) lane += (l ? ", i32 " : "<i32 ") + number(l);
  lane += ">";
  const Value b = use(in.in.op[3]);
  const std::string all = vector(use(in.in.op[2])), distance = apply("and ", vector(b), of_all(31)),
                    c = vector(use(in.in.op[4])), clamp = apply("and ", c, of_all(31)),
                    segment = apply("and ", apply("lshr ", c, of_all(8)), of_all(31)),
                    outside = apply("xor ", segment, of_all(full_mask)), first = apply("and ", lane, segment),
                    last = apply("or ", first, apply("and ", clamp, outside));
  const std::string wanted = mode == "up"     ? apply("sub ", lane, distance)
                             : mode == "down" ? apply("add ", lane, distance)
                             : mode == "bfly" ? apply("xor ", lane, distance)
                                              : apply("or ", first, apply("and ", distance, outside));
  const std::string in_range = apply(mode == "up" ? "icmp sge " : "icmp ule ", wanted, last);
  const std::string middle = pointer_at("%exchange", warp_lanes * 4);
  line("store " + type + " " + all + ", ptr " + middle + ", align 64");
  std::string read;
  if (b.uniform() && (mode == "up" || mode == "down")) {
    std::string steps = set("zext i32 " + set("and i32 " + b.text + ", 31") + " to i64");
    if (mode == "up") steps = set("sub i64 0, " + steps);
    read = set("load " + type + ", ptr " + set("getelementptr i32, ptr " + middle + ", i64 " + steps) +
               ", align 4");
    read = set("select <32 x i1> " + in_range + ", " + type + " " + read + ", " + type + " " + all);
  } else {
    const std::string from = apply(
        "and ", set("select <32 x i1> " + in_range + ", " + type + " " + wanted + ", " + type + " " + lane),
        of_all(31));
    const std::string gather =
        intrinsic(type, "masked.gather.v32i32.v32p0", "<32 x ptr>, i32, <32 x i1>, " + type);
    const std::string at = set("getelementptr i32, ptr " + middle + ", " + type + " " + from);
    read = set("call " + type + " " + gather + "(<32 x ptr> " + at + ", i32 4, <32 x i1> " +
               lanes_of_mask("-1") + ", " + type + " zeroinitializer)");
  }
  define(in.in.op[0], vector_value('w', read));
  define(in.in.op[1], vector_value('p', mask_of_lanes(in_range)));
}

}  // namespace softgpu::jit
