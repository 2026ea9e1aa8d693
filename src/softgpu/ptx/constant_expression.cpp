#include "softgpu/ptx/constant_expression.h"

#include <string>

#include "softgpu/ptx/error.h"

namespace softgpu::ptx {
namespace {

constexpr int max_nesting = 64;  // bounds recursion on hostile input

bool is(const Token& token, char c) {
  return token.kind == TokenKind::punctuation && token.text.size() == 1 && token.text[0] == c;
}

int precedence(const Token& token) {
  if (token.kind != TokenKind::punctuation) return 0;
  switch (token.text[0]) {
    case '*':
    case '/':
    case '%':
      return 6;
    case '+':
    case '-':
      return 5;
    case '<':
    case '>':
      return 4;  // << and >> come as two tokens
    case '&':
      return 3;
    case '^':
      return 2;
    case '|':
      return 1;
    default:
      return 0;
  }
}

uint64_t parse_binary(Lexer& lexer, int least, int depth);

uint64_t parse_unary(Lexer& lexer, int depth) {
  if (depth > max_nesting) syntax_error(lexer.peek().line, "constant expression is nested too deeply");
  const Token token = lexer.next();
  if (token.kind == TokenKind::integer) return token.bits;
  if (token.kind == TokenKind::word && token.text == "WARP_SZ") return 32;
  if (is(token, '-')) return uint64_t{0} - parse_unary(lexer, depth + 1);
  if (is(token, '+')) return parse_unary(lexer, depth + 1);
  if (is(token, '~')) return ~parse_unary(lexer, depth + 1);
  if (is(token, '!')) return parse_unary(lexer, depth + 1) == 0;
  if (is(token, '(')) {
    const uint64_t value = parse_binary(lexer, 1, depth + 1);
    if (!is(lexer.peek(), ')')) syntax_error(token.line, "')' expected in constant expression");
    lexer.next();
    return value;
  }
  syntax_error(token.line, "number expected, found '" + std::string(token.text) + "'");
}

uint64_t apply(char op, uint64_t a, uint64_t b, int line) {
  const auto signed_a = static_cast<int64_t>(a), signed_b = static_cast<int64_t>(b);
  switch (op) {
    case '*':
      return a * b;
    case '/':
    case '%':
      if (b == 0) syntax_error(line, "division by zero in constant expression");
      if (signed_b == -1) return op == '/' ? uint64_t{0} - a : 0;
      return static_cast<uint64_t>(op == '/' ? signed_a / signed_b : signed_a % signed_b);
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '<':
      return b < 64 ? a << b : 0;
    case '>':
      return static_cast<uint64_t>(signed_a >> (b < 64 ? b : 63));
    case '&':
      return a & b;
    case '^':
      return a ^ b;
    default:
      return a | b;
  }
}

uint64_t parse_binary(Lexer& lexer, int least, int depth) {
  if (depth > max_nesting) syntax_error(lexer.peek().line, "constant expression is nested too deeply");
  uint64_t value = parse_unary(lexer, depth + 1);
  for (;;) {
    const Token op = lexer.peek();
    const int strength = precedence(op);
    if (strength == 0 || strength < least) return value;
    lexer.next();
    if (op.text[0] == '<' || op.text[0] == '>') {
      if (!is(lexer.peek(), op.text[0])) syntax_error(op.line, "comparison in constant expression");
      lexer.next();
    }
    value = apply(op.text[0], value, parse_binary(lexer, strength + 1, depth + 1), op.line);
  }
}

}  // namespace

uint64_t parse_constant_expression(Lexer& lexer) {
  return parse_binary(lexer, 1, 0);
}

}  // namespace softgpu::ptx
