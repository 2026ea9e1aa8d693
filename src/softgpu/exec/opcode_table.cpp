#include "softgpu/exec/opcode_table.h"

#include <cstdlib>
#include <map>
#include <mutex>

namespace softgpu {

// The hot handlers exist once per instruction set: the same sources compiled several times (handlers/).
namespace isa_cold {
void register_cold(OpcodeTable& table);
}
namespace isa_baseline {
void register_hot(OpcodeTable& table);
}
namespace isa_v3 {
void register_hot(OpcodeTable& table);
}
namespace isa_v4 {
void register_hot(OpcodeTable& table);
}

void OpcodeTable::add(std::string_view pattern, const char* signature, Handler handler, uint32_t aux) {
  const size_t open = pattern.find('{');
  if (open == std::string_view::npos) {
    opcodes_.insert_or_assign(std::string(pattern), Opcode{handler, signature, aux});
    bases_.insert_or_assign(std::string(pattern.substr(0, pattern.find('.'))), true);
    return;
  }
  const size_t close = pattern.find('}', open);
  const std::string_view before = pattern.substr(0, open), after = pattern.substr(close + 1);
  std::string_view choices = pattern.substr(open + 1, close - open - 1);
  for (;;) {
    const size_t comma = choices.find(',');
    std::string expanded(before);
    expanded += choices.substr(0, comma);
    expanded += after;
    add(expanded, signature, handler, aux);
    if (comma == std::string_view::npos) return;
    choices.remove_prefix(comma + 1);
  }
}

void OpcodeTable::add(std::initializer_list<std::string_view> parts, const char* signature, Handler handler,
                      uint32_t aux) {
  std::string pattern;
  for (const std::string_view part : parts) pattern += part;
  add(pattern, signature, handler, aux);
}

const Opcode* OpcodeTable::find(std::string_view name) const {
  const auto found = opcodes_.find(name);
  return found == opcodes_.end() ? nullptr : &found->second;
}

bool OpcodeTable::has_base(std::string_view base) const {
  return bases_.find(base) != bases_.end();
}

namespace {

struct InstructionSet {
  std::string_view name;
  void (*register_hot)(OpcodeTable&);
};

// Those that were built and that this processor runs, in rising order.
std::vector<InstructionSet> sets_that_run_here() {
  std::vector<InstructionSet> made;
  auto offer = [&](std::string_view isa, bool runs_here, void (*candidate)(OpcodeTable&)) {
    if (runs_here) made.push_back({isa, candidate});
  };
#ifdef SOFTGPU_HAS_baseline
  offer("baseline", true, isa_baseline::register_hot);
#endif
#ifdef SOFTGPU_HAS_v3
  offer("v3",
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"),
        isa_v3::register_hot);
#endif
#ifdef SOFTGPU_HAS_v4
  offer("v4",
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512cd"),
        isa_v4::register_hot);
#endif
  return made;
}

// The last one, or the one that is wished for; the first where that is none of them.
OpcodeTable table_for(std::string_view wish) {
  const std::vector<InstructionSet> sets = sets_that_run_here();
  OpcodeTable made;
  if (!sets.empty()) {
    auto chosen = wish.empty() ? sets.end() - 1 : sets.begin();
    for (auto set = sets.begin(); set != sets.end(); ++set) {
      if (set->name == wish) chosen = set;
    }
    chosen->register_hot(made);
  }
  isa_cold::register_cold(made);
  return made;
}

thread_local const OpcodeTable* table_of_this_thread = nullptr;

}  // namespace

const OpcodeTable& opcode_table() {
  if (table_of_this_thread != nullptr) return *table_of_this_thread;
  static const OpcodeTable table = [] {
    const char* const wish = std::getenv("SOFTGPU_ISA");
    return table_for(wish == nullptr ? "" : wish);
  }();
  return table;
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const InstructionSet& set : sets_that_run_here()) names.emplace_back(set.name);
  return names;
}

InstructionSetScope::InstructionSetScope(const std::string& name) : before_(table_of_this_thread) {
  static std::mutex mutex;
  static std::map<std::string, OpcodeTable> tables;
  const std::lock_guard lock(mutex);
  const auto known = tables.find(name);
  table_of_this_thread =
      known != tables.end() ? &known->second : &tables.emplace(name, table_for(name)).first->second;
}

InstructionSetScope::~InstructionSetScope() {
  table_of_this_thread = before_;
}

}  // namespace softgpu
