// Variables, parameters and debug directives.
#include <bit>

#include "softgpu/ptx/constant_expression.h"
#include "softgpu/ptx/parser_state.h"

namespace softgpu::ptx {
namespace {

constexpr uint64_t max_variable_bytes = uint64_t{1} << 40;

std::optional<Space> space_from_directive(std::string_view name) {
  if (name == ".global") return Space::global;
  if (name == ".const") return Space::constant;
  if (name == ".shared" || name == ".shared::cta") return Space::shared;
  if (name == ".local") return Space::local;
  if (name == ".param") return Space::param;
  return std::nullopt;
}

}  // namespace

bool TokenReader::accept_debug_directive() {
  const Token token = peek();
  if (token.kind == TokenKind::punctuation && token.text == "@") {  // "@@DWARF ..." of old tool chains
    lexer_.skip_line(token.line);
    return true;
  }
  if (token.kind != TokenKind::directive) return false;
  if (token.text == ".loc") {
    read_location_directive(*this, debug);
    return true;
  }
  if (token.text == ".file") {
    read_file_directive(*this, debug);
    return true;
  }
  if (token.text == ".section") {
    read_section(*this, debug);
    return true;
  }
  if (token.text == ".pragma") {
    while (!at_end() && !at(';')) next();
    expect(';');
    return true;
  }
  return false;
}

uint64_t TokenReader::parse_alignment() {
  const int line = peek().line;
  const uint64_t alignment = expect_integer();
  if (!std::has_single_bit(alignment) || alignment > 65536)
    syntax_error(line, "alignment is no power of two");
  return alignment;
}

void TokenReader::parse_array_bounds(Variable& variable) {
  bool first = true;
  while (accept('[')) {
    if (first && accept(']')) {
      variable.unsized = true;
    } else {
      const uint64_t count = parse_constant_expression(lexer_);
      expect(']');
      if (count != 0 && variable.bytes > max_variable_bytes / count) {
        syntax_error(variable.line, "variable '" + std::string(variable.name) + "' is too large");
      }
      variable.bytes *= count;
    }
    first = false;
  }
}

InitialValue TokenReader::parse_initial_value(const Variable& variable) {
  InitialValue value;
  const Token token = peek();
  const auto symbol_with_offset = [&] {
    value.kind = OperandKind::name;
    if (peek().kind == TokenKind::word && peek().text == "generic") {
      next();
      expect('(');
      value.symbol = expect_word("variable");
      expect(')');
      value.generic = true;
    } else {
      value.symbol = expect_word("variable");
    }
    if (accept('+'))
      value.bits = parse_constant_expression(lexer_);
    else if (at('-'))
      value.bits = parse_constant_expression(lexer_);
  };
  if (token.kind == TokenKind::real32 || token.kind == TokenKind::real64) {
    next();
    value.kind = token.kind == TokenKind::real32 ? OperandKind::real32 : OperandKind::real64;
    value.bits = token.bits;
  } else if (at('-') && variable.type.kind == Kind::floating) {
    next();
    const Token number = next();
    if (number.kind == TokenKind::real64) {
      value.bits = number.bits ^ (uint64_t{1} << 63);
    } else if (number.kind == TokenKind::integer) {
      value.bits = std::bit_cast<uint64_t>(-static_cast<double>(number.bits));
    } else {
      syntax_error(token.line, "number expected");
    }
    value.kind = OperandKind::real64;
  } else if (token.kind == TokenKind::word && token.text != "WARP_SZ") {
    symbol_with_offset();
  } else {
    value.bits = parse_constant_expression(lexer_);
    // mask(symbol): one byte of an address, as in 0xFF00(name)
    if (accept('(')) {
      value.mask = value.bits;
      value.bits = 0;
      symbol_with_offset();
      expect(')');
      if (value.mask == 0) syntax_error(token.line, "empty mask in initialiser");
    }
  }
  return value;
}

void TokenReader::parse_initial_list(Variable& variable, int depth) {
  if (depth > 8) fail("initialiser is nested too deeply");
  expect('{');
  if (accept('}')) return;
  do {
    if (at('{')) {
      parse_initial_list(variable, depth + 1);
    } else {
      variable.initial.push_back(parse_initial_value(variable));
    }
  } while (accept(','));
  expect('}');
}

void TokenReader::parse_initialiser(Variable& variable) {
  if (at('{')) {
    parse_initial_list(variable, 0);
  } else {
    variable.initial.push_back(parse_initial_value(variable));
  }
  const uint64_t bytes = variable.initial.size() * variable.type.bytes;
  if (variable.unsized && variable.bytes != 0) {
    variable.unsized = false;
    variable.bytes = bytes;
  }
  if (bytes > variable.bytes) {
    syntax_error(variable.line, "too many initial values for '" + std::string(variable.name) + "'");
  }
}

void TokenReader::parse_variables(Linkage linkage, std::vector<Variable>& into) {
  Variable base;
  base.linkage = linkage;
  base.line = peek().line;
  const auto space = space_from_directive(peek().text);
  if (!space) fail("state space expected");
  base.space = *space;
  next();
  uint64_t lanes = 1;
  bool typed = false;
  while (peek().kind == TokenKind::directive) {
    const Token token = next();
    if (token.text == ".align") {
      base.alignment = parse_alignment();
    } else if (token.text == ".v2") {
      lanes = 2;
    } else if (token.text == ".v4") {
      lanes = 4;
    } else if (token.text == ".attribute") {  // .managed needs nothing: all memory is host memory
      expect('(');
      while (!at_end() && !at(')')) next();
      expect(')');
    } else if (const auto type = type_from_name(token.text.substr(1))) {
      base.type = *type;
      typed = true;
    } else {
      unsupported(token.line, "variables of type '" + std::string(token.text) + "' are not supported");
    }
  }
  if (!typed) fail("type expected");
  base.alignment = std::max<uint64_t>(base.alignment, lanes * base.type.bytes);
  do {
    Variable variable = base;
    variable.line = peek().line;
    variable.name = expect_word("variable name");
    variable.bytes = variable.element_bytes = lanes * base.type.bytes;
    if (accept('<')) {  // name<N> declares name0 .. nameN-1
      const uint64_t count = expect_integer();
      expect('>');
      if (count > 4096) fail("too many variables");
      syntax_error(variable.line, "parameterised variable names are only supported for registers");
    }
    parse_array_bounds(variable);
    if (accept('=')) parse_initialiser(variable);
    if (variable.unsized) variable.bytes = 0;
    into.push_back(std::move(variable));
  } while (accept(','));
  expect(';');
}

Variable TokenReader::parse_parameter() {
  Variable parameter;
  parameter.space = Space::param;
  parameter.line = peek().line;
  if (accept_directive(".reg")) {
    unsupported(parameter.line, "functions with register parameters are not supported");
  }
  if (!accept_directive(".param")) fail("'.param' expected");
  bool typed = false;
  uint64_t lanes = 1;
  while (peek().kind == TokenKind::directive) {
    const Token token = next();
    if (token.text == ".align") {
      parameter.alignment = parse_alignment();
    } else if (token.text == ".ptr") {
      // Describes what a pointer points to: .ptr .global .align 16. Nothing to do with the parameter.
      if (peek().kind == TokenKind::directive && space_from_directive(peek().text)) next();
      if (accept_directive(".align")) parse_alignment();
    } else if (token.text == ".v2" || token.text == ".v4") {
      lanes = token.text == ".v2" ? 2 : 4;
    } else if (const auto type = type_from_name(token.text.substr(1))) {
      parameter.type = *type;
      typed = true;
    } else {
      unsupported(token.line, "parameters of type '" + std::string(token.text) + "' are not supported");
    }
  }
  if (!typed) fail("type expected");
  parameter.bytes = parameter.element_bytes = lanes * parameter.type.bytes;
  parameter.alignment = std::max<uint64_t>(parameter.alignment, lanes * parameter.type.bytes);
  parameter.name = expect_word("parameter name");
  parse_array_bounds(parameter);
  if (parameter.unsized) parameter.bytes = 0;
  if (parameter.bytes > (uint64_t{1} << 20)) syntax_error(parameter.line, "parameter is too large");
  return parameter;
}

std::vector<Variable> TokenReader::parse_parameter_list() {
  std::vector<Variable> parameters;
  expect('(');
  if (accept(')')) return parameters;
  do {
    parameters.push_back(parse_parameter());
  } while (accept(','));
  expect(')');
  return parameters;
}

}  // namespace softgpu::ptx
