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
  if (base == "shfl" && emit_shuffle(in, name.part(2))) return;
  emit_call(in);
}

// A shuffle whose pattern is known when code is made.
bool Emitter::emit_shuffle(const LoweredInstruction& in, std::string_view mode) {
  const Value a = use(in.in.op[2]), b = use(in.in.op[3]), c = use(in.in.op[4]);
  if (!b.uniform() || !b.literal || !c.uniform() || !c.literal) return false;
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
  return true;
}

}  // namespace softgpu::jit
