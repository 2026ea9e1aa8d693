// compile(): parses every source, links their symbols and lowers every function.
#include <algorithm>
#include <bit>
#include <set>

#include "softgpu/exec/lower/kernel_needs.h"
#include "softgpu/exec/lower/lowering.h"
#include "softgpu/exec/program/builtin.h"
#include "softgpu/ptx/error.h"
#include "softgpu/ptx/fuse_products.h"
#include "softgpu/ptx/parser.h"

namespace softgpu {
namespace {

constexpr uint64_t max_global_bytes = uint64_t{1} << 40;
constexpr uint64_t max_initial_bytes = uint64_t{1}
                                       << 30;  // which the host holds, zeros between values included
constexpr uint64_t max_parameter_bytes = 32764;

bool is_defined(const ptx::Function& function) {
  return function.has_body;
}
bool is_external(ptx::Linkage linkage) {
  return linkage != ptx::Linkage::local;
}
bool is_weak(ptx::Linkage linkage) {
  return linkage == ptx::Linkage::weak || linkage == ptx::Linkage::common;
}

[[noreturn]] void duplicate(int line, std::string_view name) {
  throw CompileError(CompileStatus::duplicate_symbol, line,
                     "symbol '" + std::string(name) + "' is defined twice");
}

class Linker {
 public:
  Linker(std::vector<ptx::Module> modules, const Checks& checks)
      : modules_(std::move(modules)), names_(modules_.size()) {
    parts_->checks = checks;
  }

  std::unique_ptr<const ProgramParts> link() {
    for (size_t m = 0; m < modules_.size(); ++m) declare_module(m);
    for (size_t m = 0; m < modules_.size(); ++m) place_declared_shared(m);
    for (size_t m = 0; m < modules_.size(); ++m) declare_aliases(m);
    for (size_t m = 0; m < modules_.size(); ++m) initialise_globals(m);
    for (const ptx::Module& module : modules_) parts_->source_maps.emplace_back(module.debug);
    lower_functions();
    for (const uint32_t entry : entries_) add_kernel(*parts_, functions_, address_taken_, entry);
    for (const GlobalVariable& global : parts_->globals) {
      if (parts_->global_by_name
              .try_emplace(global.info.name, static_cast<size_t>(&global - parts_->globals.data()))
              .second) {
        parts_->visible_globals.push_back(global.info);
      }
    }
    return std::move(parts_);
  }

  size_t current_module() const { return current_module_; }

 private:
  class Resolver : public SymbolResolver {
   public:
    Resolver(Linker& linker, size_t module) : linker_(linker), module_(module) {}
    Symbol resolve(std::string_view name, int line) const override {
      return linker_.resolve(module_, name, line);
    }
    const FunctionSignature& signature(uint32_t function) const override {
      return linker_.functions_[function].signature;
    }
    Symbol add_variable(const ptx::Variable& variable) override {
      return linker_.add_variable(variable, module_);
    }

   private:
    Linker& linker_;
    size_t module_;
  };

  Symbol resolve(size_t module, std::string_view name, int line) const {
    // An image that is for other drivers too has a body for what is built in here.
    if (name == operation_function) return builtin(name, line);
    if (const auto found = names_[module].find(name); found != names_[module].end()) return found->second;
    if (const auto found = external_.find(name); found != external_.end()) return found->second;
    return builtin(name, line);
  }

  static Symbol builtin(std::string_view name, int line) {
    const auto known = builtins();
    for (uint32_t i = 0; i < known.size(); ++i) {
      if (known[i].name == name) return Symbol{Symbol::Kind::builtin, i};
    }
    // Of the device runtime only what one grid does by itself is built in.
    const bool launches = name.starts_with("cudaLaunchDevice") ||
                          name.starts_with("cudaGetParameterBuffer") || name.starts_with("__cudaCDP") ||
                          name.starts_with("cudaGraphLaunch");
    throw CompileError(
        CompileStatus::unresolved_symbol, line,
        "symbol '" + std::string(name) + "' is not defined" +
            (launches ? ": kernels that launch kernels (dynamic parallelism) are not supported" : ""));
  }

  FunctionSignature make_signature(const ptx::Function& function) {
    FunctionSignature signature = layout_signature(function.returns, function.parameters);
    signature.is_entry = function.is_entry;
    if (function.is_entry && signature.bytes > max_parameter_bytes) {
      syntax_error(function.line, "more than 32764 bytes of kernel parameters");
    }
    return signature;
  }

  Symbol add_variable(const ptx::Variable& variable, size_t module) {
    if (variable.space == ptx::Space::shared) {
      if (variable.bytes > (uint64_t{1} << 30)) syntax_error(variable.line, "shared variable is too large");
      parts_->shared_variables.push_back(
          SharedVariable{std::string(variable.name), variable.bytes, variable.alignment, variable.unsized});
      const auto index = static_cast<uint32_t>(parts_->shared_variables.size() - 1);
      return Symbol{variable.unsized ? Symbol::Kind::dynamic_shared : Symbol::Kind::shared, index};
    }
    if (variable.space != ptx::Space::global && variable.space != ptx::Space::constant) {
      syntax_error(variable.line, "variable '" + std::string(variable.name) +
                                      "' has a state space that is not allowed here");
    }
    total_global_bytes_ += variable.bytes;
    if (total_global_bytes_ > max_global_bytes) syntax_error(variable.line, "global variables are too large");
    GlobalVariable global;
    global.info =
        GlobalInfo{std::string(variable.name), variable.bytes, std::max<uint64_t>(variable.alignment, 1),
                   variable.space == ptx::Space::constant};
    parts_->globals.push_back(std::move(global));
    const auto index = static_cast<uint32_t>(parts_->globals.size() - 1);
    if (!variable.initial.empty()) initialised_.push_back(Initialised{index, module, &variable});
    return Symbol{Symbol::Kind::global, index};
  }

  void declare_module(size_t m) {
    ptx::Module& module = modules_[m];
    for (const ptx::Variable& variable : module.variables) {
      const bool is_dynamic_shared = variable.space == ptx::Space::shared && variable.unsized;
      if (variable.linkage == ptx::Linkage::external && !is_dynamic_shared) continue;
      if (is_external(variable.linkage) && !is_dynamic_shared) {
        if (const auto known = external_.find(variable.name); known != external_.end()) {
          if (is_weak(variable.linkage)) continue;
          if (!weak_.erase(variable.name)) duplicate(variable.line, variable.name);
          // A strong definition takes the weak one's place.
          known->second = add_variable(variable, m);
          continue;
        }
        if (is_weak(variable.linkage)) weak_.insert(variable.name);
        external_.emplace(variable.name, add_variable(variable, m));
      } else {
        if (is_dynamic_shared && names_[m].contains(variable.name)) continue;
        if (!names_[m].emplace(variable.name, add_variable(variable, m)).second) {
          duplicate(variable.line, variable.name);
        }
      }
    }
    for (const ptx::Function& function : module.functions) {
      if (!is_defined(function)) continue;
      const auto index = static_cast<uint32_t>(functions_.size());
      const Symbol symbol{Symbol::Kind::function, index};
      if (is_external(function.linkage)) {
        const auto [known, fresh] = external_.emplace(function.name, symbol);
        if (!fresh) {
          if (is_weak(function.linkage)) continue;
          if (!weak_.erase(function.name)) duplicate(function.line, function.name);
          known->second = symbol;
          std::erase_if(entries_, [&](uint32_t e) { return functions_[e].syntax->name == function.name; });
        } else if (is_weak(function.linkage)) {
          weak_.insert(function.name);
        }
      } else if (!names_[m].emplace(function.name, symbol).second) {
        duplicate(function.line, function.name);
      }
      functions_.push_back(PlacedFunction{m, &function, make_signature(function), {}, {}});
      if (function.is_entry) entries_.push_back(index);
    }
  }

  // `.extern .shared name[256]` that nobody defines gets its memory all the same: so Taichi writes shared
  // arrays.
  void place_declared_shared(size_t m) {
    for (const ptx::Variable& variable : modules_[m].variables) {
      if (variable.space != ptx::Space::shared || variable.unsized) continue;
      if (variable.linkage == ptx::Linkage::external && !external_.contains(variable.name))
        external_.emplace(variable.name, add_variable(variable, m));
    }
  }

  void declare_aliases(size_t m) {
    for (const ptx::Alias& alias : modules_[m].aliases) {
      const Symbol target = resolve(m, alias.target, alias.line);
      names_[m].insert_or_assign(alias.name, target);
      external_.insert_or_assign(alias.name, target);
    }
  }

  static void append(std::vector<std::byte>& bytes, uint64_t value, uint32_t size) {
    for (uint32_t i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(i < 8 ? value >> (8 * i) : 0));
  }

  static uint64_t element_bits(const ptx::InitialValue& value, const ptx::Type& type) {
    const bool is_double = type.kind == ptx::Kind::floating && type.bytes == 8;
    const bool is_single = type.kind == ptx::Kind::floating && type.bytes == 4;
    if (value.kind == ptx::OperandKind::real32) {
      if (!is_double) return value.bits;
      return std::bit_cast<uint64_t>(
          static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(value.bits))));
    }
    if (value.kind == ptx::OperandKind::real64) {
      if (!is_single) return value.bits;
      return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(value.bits)));
    }
    if (is_double) return std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(value.bits)));
    if (is_single) return std::bit_cast<uint32_t>(static_cast<float>(static_cast<int64_t>(value.bits)));
    return value.bits;
  }

  void initialise_globals(size_t m) {
    for (size_t i = 0; i < initialised_.size(); ++i) {
      if (initialised_[i].module == m) initialise(initialised_[i]);
    }
    std::erase_if(initialised_, [&](const Initialised& entry) { return entry.module == m; });
  }

  struct Initialised {
    uint32_t global;
    size_t module;
    const ptx::Variable* variable;
  };

  void initialise(const Initialised& entry) {
    const ptx::Variable& variable = *entry.variable;
    std::vector<std::byte> initial;
    std::vector<GlobalVariable::Relocation> relocations;
    total_initial_bytes_ += (variable.initial.back().place + 1) * variable.type.bytes;
    if (total_initial_bytes_ > max_initial_bytes)
      syntax_error(variable.line, "the initial values of global variables are too large");
    for (const ptx::InitialValue& value : variable.initial) {
      initial.resize(value.place * variable.type.bytes);
      if (value.kind == ptx::OperandKind::name) {
        const Symbol symbol = resolve(entry.module, value.symbol, variable.line);
        if (symbol.kind != Symbol::Kind::global && symbol.kind != Symbol::Kind::function) {
          syntax_error(variable.line, "'" + std::string(value.symbol) + "' cannot initialise a variable");
        }
        relocations.push_back({initial.size(), variable.type.bytes, symbol.index,
                               symbol.kind == Symbol::Kind::function, value.bits, value.mask});
        if (symbol.kind == Symbol::Kind::function) address_taken_.insert(symbol.index);
        append(initial, 0, variable.type.bytes);
      } else {
        append(initial, element_bits(value, variable.type), variable.type.bytes);
      }
    }
    parts_->globals[entry.global].initial = std::move(initial);
    parts_->globals[entry.global].relocations = std::move(relocations);
  }

  void lower_functions() {
    parts_->functions.resize(functions_.size());
    for (uint32_t f = 0; f < functions_.size(); ++f) {
      PlacedFunction& place = functions_[f];
      current_module_ = place.module;
      Function& function = parts_->functions[f];
      function.name = place.syntax->name;
      function.is_entry = place.syntax->is_entry;
      Resolver resolver(*this, place.module);
      Lowering lowering(*place.syntax, static_cast<uint16_t>(place.module), place.signature, resolver,
                        parts_->checks, function);
      lowering.run();
      place.calls = std::move(lowering.called_functions);
      place.shared = std::move(lowering.used_shared);
      place.indirect = lowering.has_indirect_call;
      place.dynamic_shared = lowering.uses_dynamic_shared;
      place.grid_sync = lowering.uses_grid_sync;
      address_taken_.insert(lowering.address_taken.begin(), lowering.address_taken.end());
      // Function bodies may declare initialised .global variables of their own.
      initialise_globals(place.module);
    }
  }

  std::vector<ptx::Module> modules_;
  std::vector<std::unordered_map<std::string_view, Symbol>> names_;  // per module, what is not external
  std::unordered_map<std::string_view, Symbol> external_;
  std::set<std::string_view> weak_;
  std::vector<PlacedFunction> functions_;
  std::vector<uint32_t> entries_;
  std::vector<Initialised> initialised_;
  std::set<uint32_t> address_taken_;
  uint64_t total_global_bytes_ = 0, total_initial_bytes_ = 0;
  size_t current_module_ = 0;
  std::unique_ptr<ProgramParts> parts_ = std::make_unique<ProgramParts>();
};

}  // namespace

CompileResult compile(std::span<const std::string_view> ptx_sources, const Checks& checks,
                      bool fuses_products) {
  CompileResult result;
  size_t source = 0;
  auto refuse = [&](CompileStatus status, int line, const std::string& message) {
    result.status = status;
    result.log = "source " + std::to_string(source + 1) + ", line " + std::to_string(line) + ": " + message;
  };
  std::unique_ptr<Linker> linker;
  try {
    std::vector<ptx::Module> modules;
    for (; source < ptx_sources.size(); ++source) {
      modules.push_back(ptx::parse(ptx_sources[source]));
      if (fuses_products) ptx::fuse_products(modules.back());
      result.ptx_version = std::max(result.ptx_version, modules.back().version);
      result.target = std::max(result.target, modules.back().target);
    }
    source = 0;
    linker = std::make_unique<Linker>(std::move(modules), checks);
    result.program = std::make_shared<const Program>(linker->link());
  } catch (const CompileError& error) {
    if (linker) source = linker->current_module();
    refuse(error.status, error.line, error.what());
  } catch (const std::bad_alloc&) {
    refuse(CompileStatus::syntax_error, 0, "out of memory");
  }
  return result;
}

}  // namespace softgpu
