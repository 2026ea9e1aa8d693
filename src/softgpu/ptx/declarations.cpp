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

TokenReader::Shape TokenReader::parse_array_bounds(Variable& variable) {
  std::vector<uint64_t> counts;
  while (accept('[')) {
    if (counts.empty() && accept(']')) {
      variable.unsized = true;
      counts.push_back(0);
    } else {
      const uint64_t count = parse_constant_expression(lexer_);
      expect(']');
      if (count != 0 && variable.bytes > max_variable_bytes / count) {
        syntax_error(variable.line, "variable '" + std::string(variable.name) + "' is too large");
      }
      variable.bytes *= count;
      counts.push_back(count);
    }
  }
  if (variable.element_bytes > variable.type.bytes)  // the lanes of a vector are its rows
    counts.push_back(variable.element_bytes / variable.type.bytes);
  Shape shape{1};
  for (size_t i = counts.size(); i-- > 0;) shape.insert(shape.begin(), shape.front() * counts[i]);
  if (variable.unsized) shape.front() = max_variable_bytes / variable.type.bytes;
  return shape;
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
    if (peek().kind == TokenKind::real64) {
      value.kind = OperandKind::real64;
      value.bits = next().bits ^ (uint64_t{1} << 63);
    } else {
      value.bits = parse_constant_expression(lexer_, '-');
    }
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

// A list fills one row, from `begin` on; returns where the next value would have been. As in C, what a list
// does not name is zero, and the braces of whole rows may be left out.
uint64_t TokenReader::parse_initial_list(Variable& variable, const Shape& shape, size_t depth,
                                         uint64_t begin) {
  if (depth > 8) fail("initialiser is nested too deeply");
  const uint64_t most = depth < shape.size() ? shape[depth] : 1;
  const uint64_t row = depth + 1 < shape.size() ? shape[depth + 1] : 1;
  const auto require_room = [&](uint64_t used, uint64_t wanted) {
    if (used > most || wanted > most - used || most == 0 || row == 0) {
      syntax_error(variable.line, "too many initial values for '" + std::string(variable.name) + "'");
    }
  };
  uint64_t place = begin;
  expect('{');
  if (accept('}')) return place;
  do {
    if (at('{')) {
      require_room(place - begin, row);
      if ((place - begin) % row != 0) fail("a row of initial values begins in the middle of another");
      parse_initial_list(variable, shape, depth + 1, place);
      place += row;
    } else {
      require_room(place - begin, 1);
      variable.initial.push_back(parse_initial_value(variable));
      variable.initial.back().place = place++;
    }
  } while (accept(','));
  expect('}');
  return place;
}

void TokenReader::parse_initialiser(Variable& variable, const Shape& shape) {
  uint64_t values = 1;
  if (at('{')) {
    values = parse_initial_list(variable, shape, 0, 0);
  } else {
    variable.initial.push_back(parse_initial_value(variable));
  }
  if (variable.unsized && variable.bytes != 0) {
    const uint64_t row = shape.size() > 1 ? shape[1] : 1;
    variable.unsized = false;
    variable.bytes = (values + row - 1) / row * row * variable.type.bytes;
  }
  if (values * variable.type.bytes > variable.bytes) {
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
    const Shape shape = parse_array_bounds(variable);
    if (accept('=')) parse_initialiser(variable, shape);
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
