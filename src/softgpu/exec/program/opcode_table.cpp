#include "softgpu/exec/program/opcode_table.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/mutex.h"
#include "softgpu/exec/program/instruction_set.h"
#include "softgpu/ptx/types.h"

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

namespace {

// "min.s32.relu" -> "min.relu,s32": suffixes that are no types in sorted order, then the types in theirs.
std::string sorted_suffixes(std::string_view name) {
  const size_t base = std::min(name.find('.'), name.size());
  std::vector<std::string_view> modifiers;
  std::string types;
  for (std::string_view rest = name.substr(base); !rest.empty();) {
    rest.remove_prefix(1);
    const std::string_view suffix = rest.substr(0, rest.find('.'));
    rest.remove_prefix(suffix.size());
    if (ptx::type_from_name(suffix)) {
      types += ',';
      types += suffix;
    } else {
      modifiers.push_back(suffix);
    }
  }
  std::sort(modifiers.begin(), modifiers.end());
  std::string key(name.substr(0, base));
  for (const std::string_view modifier : modifiers) {
    key += '.';
    key += modifier;
  }
  return key + types;
}

}  // namespace

void OpcodeTable::add(std::string_view pattern, const char* signature, Handler handler, uint32_t aux) {
  const size_t open = pattern.find('{');
  if (open == std::string_view::npos) {
    const auto place = opcodes_.insert_or_assign(std::string(pattern), Opcode{handler, signature, aux}).first;
    place->second.name = place->first;  // nodes of the map stay where they are
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

std::vector<std::string_view> OpcodeTable::names() const {
  std::vector<std::string_view> all;
  for (const auto& [name, opcode] : opcodes_) all.push_back(name);
  std::sort(all.begin(), all.end());
  return all;
}

bool OpcodeTable::has_base(std::string_view base) const {
  return bases_.find(base) != bases_.end();
}

namespace {

struct Variant {
  std::string_view name;  // as GPUPOOL_SOFTGPU_ISA says it
  bool runs_here;
  void (*register_hot)(OpcodeTable&);
};

// In rising order.
std::vector<Variant> variants_here() {
  std::vector<Variant> variants{
#ifdef SOFTGPU_HAS_baseline
      {"baseline", true, isa_baseline::register_hot},
#endif
#ifdef SOFTGPU_HAS_v3
      {"avx2",
       __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"),
       isa_v3::register_hot},
#endif
#ifdef SOFTGPU_HAS_v4
      {"avx512",
       __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd"),
       isa_v4::register_hot},
#endif
  };
  std::erase_if(variants, [](const Variant& variant) { return !variant.runs_here; });
  return variants;
}

// With the handlers of the last one that this processor can run, or of the one that is wished for.
OpcodeTable table_for(std::string_view wish) {
  const std::vector<Variant> variants = variants_here();
  OpcodeTable made;
  if (!variants.empty()) {
    auto chosen = std::find_if(variants.begin(), variants.end(),
                               [&](const Variant& variant) { return variant.name == wish; });
    const bool granted = wish.empty() || chosen != variants.end();
    if (chosen == variants.end()) --chosen;
    if (!granted) {
      std::fprintf(stderr, "softgpu: GPUPOOL_SOFTGPU_ISA=%s is not usable here, %s is taken\n",
                   std::string(wish).c_str(), std::string(chosen->name).c_str());
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
  // Never destroyed: while the process ends, other threads may go on loading programs.
  static const OpcodeTable* const table = [] {
    const char* const wish = std::getenv("GPUPOOL_SOFTGPU_ISA");
    return new OpcodeTable(table_for(wish == nullptr ? "" : wish));
  }();
  return *table;
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const Variant& variant : variants_here()) names.emplace_back(variant.name);
  return names;
}

InstructionSetScope::InstructionSetScope(const std::string& name) : before_(table_of_this_thread) {
  static gpupool::Mutex mutex;
  static std::map<std::string, OpcodeTable> tables;
  const gpupool::MutexLock lock(mutex);
  const auto known = tables.find(name);
  table_of_this_thread =
      known != tables.end() ? &known->second : &tables.emplace(name, table_for(name)).first->second;
}

InstructionSetScope::~InstructionSetScope() {
  table_of_this_thread = before_;
}

const Opcode* find_in_any_order(std::string_view& name) {
  const OpcodeTable& table = opcode_table();
  if (const Opcode* const exact = table.find(name)) return exact;
  // Made when first wanted: most programs never need it.
  static const auto* const index = [&table] {
    auto* const made = new std::unordered_map<std::string, std::string_view>;
    for (const std::string_view known : table.names()) {
      if (!known.starts_with('@')) made->try_emplace(sorted_suffixes(known), known);
    }
    return made;
  }();
  const auto other = index->find(sorted_suffixes(name));
  if (other == index->end()) return nullptr;
  name = other->second;
  return table.find(name);
}

}  // namespace softgpu
