// Loads and stores. Checks are the interpreter's: what is not certainly inside the device's arena or the
// block's shared memory, and aligned, goes to the interpreter's handler, which knows the rest and raises
// faults.
#include <algorithm>

#include "softgpu/exec/program/memory_operand.h"
#include "softgpu/jit/emit/emitter.h"
#include "softgpu/jit/emit/opcode_name.h"

namespace softgpu::jit {

std::string Emitter::window_bytes(const Access& access) {
  return access.shared ? "%shared_bytes" : "%primary_bytes";
}
std::string Emitter::host_address(const Access& access, const std::string& address) {
  return set("inttoptr i64 " + (access.shared ? set("add i64 " + address + ", %shared_base") : address) +
             " to ptr");
}

// What the instruction's name and operands say. False: it is the interpreter's.
bool Emitter::read_memory_access(const LoweredInstruction& in, Memory& made) {
  const OpcodeName name(in.opcode);
  const std::string_view base = name.part(0);
  made.loads = base == "@load" || base == "@vload";
  const bool stores = base == "@store" || base == "@vstore";
  if (!made.loads && !stores) return false;
  made.several = base == "@vload" || base == "@vstore";
  made.size = name.last()[0];
  if (made.size == 'q') return false;
  const std::string_view type = name.part(1);
  const uint32_t element = made.loads ? static_cast<uint32_t>(std::stoul(std::string(type.substr(1)))) / 8
                                      : static_cast<uint32_t>(std::stoul(std::string(type)));
  made.count = made.several ? static_cast<uint32_t>(in.list.size()) : 1;
  made.is_signed = made.loads && type[0] == 's';
  if (!find_address(in, made.loads && !made.several ? 1 : 0, element * made.count, element, made))
    return false;
  made.memory_scalar = "i" + number(8 * element);
  made.memory_vector = "<32 x " + made.memory_scalar + ">";
  // Results are collected in variables, one for each way.
  made.scalar_result = made.loads && made.address.uniform();
  for (uint32_t k = 0; made.loads && k < made.count; ++k) {
    made.results.push_back(fresh("%loaded."));
    variables_ +=
        "  " + made.results.back() + " = alloca " + Form{made.scalar_result}.integer(made.size) + "\n";
  }
  made.fast = fresh("inside.");
  made.slow = fresh("checked.");
  made.after = fresh("accessed.");
  return true;
}

bool Emitter::find_address(const LoweredInstruction& in, uint32_t base_operand, uint32_t bytes,
                           uint32_t element, Access& made) {
  namespace operand = memory_operand;
  const uint32_t how = in.in.aux & ((1u << operand::address_bits) - 1), space = how & operand::space_mask;
  if (in.ordered || space == operand::local || (how & operand::no_base)) return false;
  made.shared = space == operand::shared;
  made.bytes = bytes;
  made.element = element;
  Value base = use(in.in.op[base_operand]);
  const auto offset = static_cast<uint64_t>(in.in.immediate);
  if (how & operand::address32) {
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

void Emitter::store_result(const Memory& access, uint32_t k, const std::string& text, bool scalar) {
  const std::string have = scalar ? access.memory_scalar : access.memory_vector;
  const std::string want = Form{scalar}.integer(access.size);
  std::string value = text;
  if (8 * access.element != 8 * lane_bytes(access.size)) {
    const char* const how = access.element > lane_bytes(access.size) ? "trunc "
                            : access.is_signed                       ? "sext "
                                                                     : "zext ";
    value = set(how + have + " " + text + " to " + want);
  }
  line("store " + want + " " + value + ", ptr " + access.results[k]);
}

Value Emitter::stored_value(const LoweredInstruction& in, const Memory& access, uint32_t k) {
  return access.several ? use(in.list[k]) : use(in.in.op[1]);
}

std::string Emitter::narrowed(const Memory& access, const std::string& text, bool scalar) {
  if (access.element == lane_bytes(access.size)) return text;
  return set("trunc " + Form{scalar}.integer(access.size) + " " + text + " to " +
             (scalar ? access.memory_scalar : access.memory_vector));
}

// A load's or store's code: `fast` where the access is certainly allowed, the handler otherwise.
bool Emitter::emit_memory(const LoweredInstruction& in) {
  const OpcodeName name(in.opcode);
  if (name.part(0) == "cvta" && (name.has("shared") || name.has("shared::cta"))) {
    const Value shared = scalar_value('x', "%shared_base");
    define(in.in.op[0], shifted_sum(use(in.in.op[1]), shared, name.part(1) == "to"));
    return true;
  }
  Memory access;
  if (!read_memory_access(in, access)) return false;
  const std::string begin = fresh("access.");
  const size_t way_begins = text_.size();
  if (guarded_) {
    line("br i1 " + set("icmp ne i32 " + mask_ + ", 0") + ", label %" + begin + ", label %" + access.after);
    label(begin);
  }
  if (!access.shared) mark_place();
  access.lanes = lanes_of_mask(mask_);
  const auto whole_elements = [&] {
    return std::all_of(access.address.offsets->begin(), access.address.offsets->end(),
                       [&](int64_t o) { return o % int64_t{access.bytes} == 0; });
  };
  if (access.address.uniform()) {
    emit_uniform_access(in, access);
  } else if (access.address.scalar && whole_elements()) {
    emit_shaped_access(in, access);
  } else {
    emit_scattered_access(in, access);
  }
  line("br label %" + access.after);
  const bool has_slow_way = text_.find(", label %" + access.slow + ",", way_begins) != std::string::npos;
  if (has_slow_way) emit_checked_access(in, access);
  label(access.after);
  for (uint32_t k = 0; access.loads && k < access.count; ++k) {
    const std::string text =
        set("load " + Form{access.scalar_result}.integer(access.size) + ", ptr " + access.results[k]);
    define(access.several ? in.list[k] : in.in.op[0],
           access.scalar_result ? scalar_value(access.size, text) : vector_value(access.size, text));
  }
  return true;
}

// A parameter that is a structure, read through its address.
void Emitter::emit_parameter_access(const Memory& access) {
  const std::string inside = fresh("parameter."), elsewhere = fresh("elsewhere.");
  const std::string from = set("sub i64 " + access.address.text + ", %parameters");
  const std::string room = set("call i64 " + intrinsic("i64", "usub.sat.i64", "i64, i64") +
                               "(i64 %parameter_bytes, i64 " + number(access.bytes - 1) + ")");
  const std::string low_bits = set("and i64 " + access.address.text + ", " + number(access.bytes - 1));
  const std::string holds = set("and i1 " + set("icmp ult i64 " + from + ", " + room) + ", " +
                                set("icmp eq i64 " + low_bits + ", 0"));
  line("br i1 " + holds + ", label %" + inside + ", label %" + elsewhere);
  label(inside);
  const std::string pointer = host_address(access, access.address.text);
  for (uint32_t k = 0; k < access.count; ++k) {
    const std::string at = pointer_at(pointer, int64_t{k} * access.element);
    store_result(access, k, set("load " + access.memory_scalar + ", ptr " + at), true);
  }
  line("br label %" + access.after);
  label(elsewhere);
}

// By the interpreter's handler.
void Emitter::emit_checked_access(const LoweredInstruction& in, const Memory& access) {
  const Form one{true}, all{false};
  label(access.slow);
  if (graph_.takes_addresses_of_parameters && access.loads && !access.shared && access.address.uniform())
    emit_parameter_access(access);
  call_handler(in);
  for (uint32_t k = 0; access.loads && k < access.count; ++k) {
    const uint32_t place = access.several ? tier_.list_place(k) : tier_.operand_place(0);
    std::string text;
    if (access.scalar_result) {
      const std::string lane = set("zext i32 " + first_lane(mask_) + " to i64");
      const std::string at =
          set("getelementptr " + one.integer(access.size) + ", ptr " + home_pointer(place) + ", i64 " + lane);
      text = set("load " + one.integer(access.size) + ", ptr " + at);
    } else {
      text = set("load " + all.integer(access.size) + ", ptr " + home_pointer(place));
    }
    line("store " + Form{access.scalar_result}.integer(access.size) + " " + text + ", ptr " +
         access.results[k]);
  }
  line("br label %" + access.after);
}

}  // namespace softgpu::jit
