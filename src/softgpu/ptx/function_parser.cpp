// The body of a function: scopes, registers, labels, instructions.
#include <charconv>
#include <set>

#include "softgpu/ptx/constant_expression.h"
#include "softgpu/ptx/parser_state.h"

namespace softgpu::ptx {
namespace {

constexpr size_t max_scope_depth = 256;
constexpr size_t max_vector_elements = 64;

class BodyParser {
 public:
  BodyParser(TokenReader& in, const std::vector<Variable>& variables, Function& function)
      : in_(in), variables_(variables), function_(function) {}

  void parse() {
    in_.expect('{');
    open_scope();
    while (!open_.empty()) parse_statement();
  }

 private:
  struct RegisterRange {  // .reg .b32 %r<100>
    std::string_view prefix;
    uint64_t count;
    Type type;
  };
  struct Scope {
    uint32_t id;
    std::unordered_map<std::string_view, uint32_t> registers;
    std::vector<RegisterRange> ranges;
  };

  void open_scope() {
    if (open_.size() >= max_scope_depth) in_.fail("scopes are nested too deeply");
    const auto id = static_cast<uint32_t>(function_.scope_parent.size());
    function_.scope_parent.push_back(open_.empty() ? 0 : open_.back().id);
    open_.push_back(Scope{id, {}, {}});
  }

  uint32_t add_register(Type type) {
    function_.registers.push_back(Register{type});
    return static_cast<uint32_t>(function_.registers.size() - 1);
  }

  // Registers of a range come into being when they are first named, so that %r<100000> costs nothing.
  std::optional<uint32_t> find_register(std::string_view name) {
    for (auto scope = open_.rbegin(); scope != open_.rend(); ++scope) {
      if (const auto found = scope->registers.find(name); found != scope->registers.end())
        return found->second;
      for (const RegisterRange& range : scope->ranges) {
        if (!name.starts_with(range.prefix) || name.size() == range.prefix.size()) continue;
        const std::string_view digits = name.substr(range.prefix.size());
        uint64_t number = 0;
        const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        if (code != std::errc{} || end != digits.data() + digits.size() || number >= range.count) continue;
        const uint32_t index = add_register(range.type);
        scope->registers.emplace(name, index);
        return index;
      }
    }
    return std::nullopt;
  }

  void parse_registers() {
    const Token first = in_.next();
    if (first.kind != TokenKind::directive) syntax_error(first.line, "register type expected");
    if (first.text == ".v2" || first.text == ".v4") {
      unsupported(first.line, "vector registers are not supported");
    }
    const auto type = type_from_name(first.text.substr(1));
    if (!type)
      unsupported(first.line, "registers of type '" + std::string(first.text) + "' are not supported");
    do {
      const std::string_view name = in_.expect_word("register name");
      if (in_.accept('<')) {
        const uint64_t count = in_.expect_integer();
        in_.expect('>');
        open_.back().ranges.push_back(RegisterRange{name, count, *type});
      } else {
        if (!open_.back().registers.emplace(name, add_register(*type)).second) {
          in_.fail("register '" + std::string(name) + "' is declared twice");
        }
      }
    } while (in_.accept(','));
    in_.expect(';');
  }

  void parse_statement() {
    if (in_.at_end()) in_.fail("'}' expected");
    if (in_.at('{')) {
      in_.next();
      return open_scope();
    }
    if (in_.at('}')) {
      in_.next();
      open_.pop_back();
      return;
    }
    if (in_.accept(';')) return;
    if (in_.at('@')) return parse_instruction();
    const Token& token = in_.peek();
    if (token.kind == TokenKind::directive) {
      if (in_.accept_debug_directive()) return;
      if (in_.accept_directive(".reg")) return parse_registers();
      const size_t before = function_.variables.size();
      in_.parse_variables(Linkage::local, function_.variables);
      for (size_t i = before; i < function_.variables.size(); ++i) {
        function_.variable_scope.push_back(open_.back().id);
      }
      return;
    }
    if (token.kind != TokenKind::word) in_.fail("instruction expected");
    parse_instruction();
  }

  void parse_label(const Token& name) {
    if (in_.accept_directive(".branchtargets")) {
      BranchTable table{name.text, open_.back().id, {}};
      do {
        table.targets.push_back(in_.expect_word("label"));
      } while (in_.accept(','));
      in_.expect(';');
      function_.branch_tables.push_back(std::move(table));
      return;
    }
    if (in_.accept_directive(".callprototype")) {
      CallPrototype prototype{name.text, open_.back().id, {}, {}, {}};
      if (in_.at('(')) prototype.returns = in_.parse_parameter_list();
      in_.expect_word("'_'");
      if (in_.at('(')) prototype.parameters = in_.parse_parameter_list();
      return end_prototype(std::move(prototype));
    }
    if (in_.accept_directive(".calltargets")) {
      CallPrototype prototype{name.text, open_.back().id, {}, {}, {}};
      prototype.target = in_.expect_word("function");
      return end_prototype(std::move(prototype));
    }
    if (!labels_.emplace(open_.back().id, name.text).second) {
      syntax_error(name.line, "label '" + std::string(name.text) + "' is defined twice");
    }
    function_.labels.push_back(
        Label{name.text, open_.back().id, static_cast<uint32_t>(function_.instructions.size())});
  }

  // After the signature: further targets, or attributes without effect (.noreturn, .abi_preserve).
  void end_prototype(CallPrototype prototype) {
    while (!in_.at_end() && !in_.at(';')) in_.next();
    in_.expect(';');
    function_.prototypes.push_back(std::move(prototype));
  }

  void parse_instruction() {
    Instruction instruction;
    instruction.line = in_.peek().line;
    if (in_.accept('@')) {
      instruction.guard_negated = in_.accept('!');
      const std::string_view name = in_.expect_word("predicate");
      const auto reg = find_register(name);
      if (!reg || function_.registers[*reg].type.kind != Kind::predicate) {
        in_.fail("'" + std::string(name) + "' is no predicate register");
      }
      instruction.guard = static_cast<int32_t>(*reg);
    }
    const Token opcode = in_.next();
    if (opcode.kind != TokenKind::word) syntax_error(opcode.line, "opcode expected");
    if (instruction.guard < 0 && in_.accept(':')) return parse_label(opcode);
    instruction.opcode = opcode.text;
    in_call_ = opcode.text == "call" || opcode.text.starts_with("call.");
    if (!in_.at(';')) {
      do {
        instruction.operands.push_back(parse_operand(0));
      } while (in_.accept(','));
    }
    in_.expect(';');
    function_.instructions.push_back(std::move(instruction));
  }

  Operand parse_operand(int depth) {
    Operand operand = parse_simple_operand(depth);
    if (in_.accept('|')) {
      Operand pair;
      pair.kind = OperandKind::pair;
      pair.elements.push_back(std::move(operand));
      pair.elements.push_back(parse_simple_operand(depth));
      return pair;
    }
    return operand;
  }

  std::vector<Operand> parse_elements(char close, int depth) {
    std::vector<Operand> elements;
    if (in_.accept(close)) return elements;
    do {
      if (elements.size() == max_vector_elements) in_.fail("too many operands");
      elements.push_back(parse_operand(depth + 1));
    } while (in_.accept(','));
    in_.expect(close);
    return elements;
  }

  Operand parse_simple_operand(int depth) {
    if (depth > 3) in_.fail("operands are nested too deeply");
    Operand operand;
    if (in_.accept('!')) {
      if (in_.peek().kind != TokenKind::word || in_.peek().text == "WARP_SZ") return parse_constant('!');
      operand = parse_simple_operand(depth + 1);
      if (operand.kind != OperandKind::reg) in_.fail("predicate expected after '!'");
      operand.negated = !operand.negated;
      return operand;
    }
    if (in_.accept('{')) {
      operand.kind = OperandKind::vector;
      operand.elements = parse_elements('}', depth);
      return operand;
    }
    // Only calls have lists; elsewhere it is the parenthesis of an expression.
    if (in_call_ && depth == 0 && in_.accept('(')) {
      operand.kind = OperandKind::list;
      operand.elements = parse_elements(')', depth);
      return operand;
    }
    if (in_.accept('[')) return parse_address(depth);
    const Token token = in_.peek();
    if (token.kind == TokenKind::word && token.text != "WARP_SZ") return parse_name();
    if (token.kind == TokenKind::real32 || token.kind == TokenKind::real64) {
      in_.next();
      operand.kind = token.kind == TokenKind::real32 ? OperandKind::real32 : OperandKind::real64;
      operand.bits = token.bits;
      return operand;
    }
    if (in_.at('-')) {
      // A negative decimal float is lexed as '-' and a number.
      in_.next();
      const Token number = in_.peek();
      if (number.kind == TokenKind::real64) {
        in_.next();
        operand.kind = OperandKind::real64;
        operand.bits = number.bits ^ (uint64_t{1} << 63);
        return operand;
      }
      if (number.kind == TokenKind::word && number.text.starts_with('%')) {
        operand = parse_name();
        if (operand.kind != OperandKind::reg) in_.fail("register expected after '-'");
        operand.negated = true;
        return operand;
      }
      return parse_constant('-');
    }
    if (token.kind == TokenKind::end) in_.fail("operand expected");
    return parse_constant('\0');
  }

  // `taken`: a unary operator that was read already.
  Operand parse_constant(char taken) {
    Operand operand;
    operand.kind = OperandKind::integer;
    operand.bits = parse_constant_expression(in_.lexer(), taken);
    return operand;
  }

  Operand parse_name() {
    Operand operand;
    operand.text = in_.next().text;
    operand.scope = open_.back().id;
    if (operand.text == "_") return operand;
    if (const auto reg = find_register(operand.text)) {
      operand.kind = OperandKind::reg;
      operand.reg = *reg;
      return operand;
    }
    // %r1.b3, %r1.h10: parts of a register.
    if (const size_t dot = operand.text.rfind('.');
        dot != std::string_view::npos && dot + 2 <= operand.text.size()) {
      const std::string_view selector = operand.text.substr(dot + 1);
      const bool is_selector = (selector[0] == 'b' || selector[0] == 'h') && selector.size() <= 5 &&
                               selector.find_first_not_of("01234567", 1) == std::string_view::npos &&
                               selector.size() >= 2;
      if (const auto reg = is_selector ? find_register(operand.text.substr(0, dot)) : std::nullopt) {
        operand.kind = OperandKind::reg;
        operand.reg = *reg;
        operand.selector = selector;
        return operand;
      }
    }
    operand.kind = OperandKind::name;
    // name[4], name+4 and generic addresses of variables as values
    if (in_.at('[')) operand.offset = parse_index(operand.text);
    if (in_.at('+') || in_.at('-')) operand.offset += parse_offset();
    return operand;
  }

  // The variable that a name means here: the innermost of the function, its parameters, the module's.
  const Variable* find_variable(std::string_view name) const {
    for (auto scope = open_.rbegin(); scope != open_.rend(); ++scope) {
      for (size_t i = 0; i < function_.variables.size(); ++i) {
        if (function_.variable_scope[i] == scope->id && function_.variables[i].name == name)
          return &function_.variables[i];
      }
    }
    const std::vector<Variable>* const outside[] = {&function_.parameters, &function_.returns, &variables_};
    for (const auto* const declared : outside) {
      for (const Variable& variable : *declared) {
        if (variable.name == name) return &variable;
      }
    }
    return nullptr;
  }

  // In bytes: an index counts elements.
  int64_t parse_index(std::string_view name) {
    const Variable* const variable = find_variable(name);
    if (variable == nullptr) in_.fail("'" + std::string(name) + "' is no variable, so it has no elements");
    in_.expect('[');
    const uint64_t index = parse_constant_expression(in_.lexer());
    in_.expect(']');
    return static_cast<int64_t>(index * variable->element_bytes);
  }

  int64_t parse_offset() {
    if (in_.accept('+')) return static_cast<int64_t>(parse_constant_expression(in_.lexer()));
    return static_cast<int64_t>(parse_constant_expression(in_.lexer()));  // starts with '-'
  }

  Operand parse_address(int depth) {
    Operand operand;
    operand.kind = OperandKind::address;
    if (in_.peek().kind == TokenKind::word) {
      Operand base = parse_name();
      operand.offset = base.offset;
      base.offset = 0;
      operand.elements.push_back(std::move(base));
    } else {
      operand.elements.push_back(parse_simple_operand(depth + 1));
    }
    if (in_.at('+') || in_.at('-')) operand.offset += parse_offset();
    if (in_.accept(',')) operand.elements.push_back(parse_simple_operand(depth + 1));  // of a texture
    in_.expect(']');
    return operand;
  }

  TokenReader& in_;
  const std::vector<Variable>& variables_;
  Function& function_;
  std::vector<Scope> open_;
  bool in_call_ = false;                                    // the instruction that is being read
  std::set<std::pair<uint32_t, std::string_view>> labels_;  // scope, name
};

}  // namespace

void parse_body(TokenReader& in, const std::vector<Variable>& variables, Function& function) {
  BodyParser(in, variables, function).parse();
}

}  // namespace softgpu::ptx
