// Shared by the parser's two halves: declarations (parser.cpp) and function bodies (function_parser.cpp).
#pragma once

#include <string>
#include <string_view>

#include "softgpu/ptx/debug_info.h"
#include "softgpu/ptx/error.h"
#include "softgpu/ptx/lexer.h"
#include "softgpu/ptx/syntax.h"

namespace softgpu::ptx {

class TokenReader {
 public:
  explicit TokenReader(std::string_view source) : lexer_(source) {}

  Lexer& lexer() { return lexer_; }
  const Token& peek() const { return lexer_.peek(); }
  Token next() { return lexer_.next(); }
  bool at_end() const { return peek().kind == TokenKind::end; }
  bool at(char c) const { return peek().kind == TokenKind::punctuation && peek().text[0] == c; }
  bool at_directive(std::string_view name) const {
    return peek().kind == TokenKind::directive && peek().text == name;
  }
  bool accept(char c) {
    if (!at(c)) return false;
    next();
    return true;
  }
  bool accept_directive(std::string_view name) {
    if (!at_directive(name)) return false;
    next();
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("'") + c + "' expected");
  }
  std::string_view expect_word(const char* what) {
    if (peek().kind != TokenKind::word) fail(std::string(what) + " expected");
    return next().text;
  }
  uint64_t expect_integer() {
    if (peek().kind != TokenKind::integer) fail("number expected");
    return next().bits;
  }
  [[noreturn]] void fail(const std::string& message) const {
    syntax_error(peek().line, at_end()
                                  ? message + ", found the end of the source"
                                  : message + ", found '" + std::string(peek().text.substr(0, 60)) + "'");
  }

  // Declarations that occur at module level and in functions alike.
  // Reads a directive that has no effect on what is computed: where instructions come from, pragmas.
  bool accept_debug_directive();
  DebugInfo debug;
  // After the linkage; the current token is the state space directive. Reads up to and with ';'.
  void parse_variables(Linkage linkage, std::vector<Variable>& into);
  // ".param .u64 name" of a function's signature or a call prototype.
  Variable parse_parameter();
  std::vector<Variable> parse_parameter_list();

 private:
  uint64_t parse_alignment();
  // How many elements a variable has, one of its rows, one of that one's rows and so on; the last is 1.
  using Shape = std::vector<uint64_t>;
  Shape parse_array_bounds(Variable& variable);
  void parse_initialiser(Variable& variable, const Shape& shape);
  InitialValue parse_initial_value(const Variable& variable);
  uint64_t parse_initial_list(Variable& variable, const Shape& shape, size_t depth, uint64_t begin);

  Lexer lexer_;
};

// Parses "{ ... }" into function, whose module has declared `variables` before it.
void parse_body(TokenReader& in, const std::vector<Variable>& variables, Function& function);

}  // namespace softgpu::ptx
