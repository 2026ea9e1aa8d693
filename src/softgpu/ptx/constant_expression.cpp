#include "softgpu/ptx/constant_expression.h"

#include <string>

#include "softgpu/ptx/error.h"

namespace softgpu::ptx {
namespace {

constexpr int max_nesting = 128;  // bounds recursion on hostile input

// A number is signed unless it has a U or is too large for that.
struct Value {
  uint64_t bits = 0;
  bool is_unsigned = false;
};

enum class Operator : uint8_t {
  none,
  multiply,
  divide,
  remainder,
  add,
  subtract,
  shift_left,
  shift_right,
  less,
  less_or_equal,
  greater,
  greater_or_equal,
  equal,
  different,
  bit_and,
  bit_xor,
  bit_or,
  both,
  either
};

struct Found {
  Operator which = Operator::none;
  int strength = 0;  // what binds more tightly has more
  int tokens = 0;    // characters, each of which is a token
};

bool is(const Token& token, char c) {
  return token.kind == TokenKind::punctuation && token.text.size() == 1 && token.text[0] == c;
}

Found find_operator(const Lexer& lexer) {
  const Token first = lexer.peek();
  // Before a digit it begins the name of a register, as in "%4".
  if (first.kind == TokenKind::word && first.text == "%") return {Operator::remainder, 10, 1};
  if (first.kind != TokenKind::punctuation) return {};
  const auto doubled = [&](char second) {
    Lexer ahead = lexer;
    ahead.next();
    return is(ahead.peek(), second) && ahead.peek().text.data() == first.text.data() + 1;
  };
  switch (first.text[0]) {
    case '*':
      return {Operator::multiply, 10, 1};
    case '/':
      return {Operator::divide, 10, 1};
    case '+':
      return {Operator::add, 9, 1};
    case '-':
      return {Operator::subtract, 9, 1};
    case '<':
      if (doubled('<')) return {Operator::shift_left, 8, 2};
      return doubled('=') ? Found{Operator::less_or_equal, 7, 2} : Found{Operator::less, 7, 1};
    case '>':
      if (doubled('>')) return {Operator::shift_right, 8, 2};
      return doubled('=') ? Found{Operator::greater_or_equal, 7, 2} : Found{Operator::greater, 7, 1};
    case '=':
      return doubled('=') ? Found{Operator::equal, 6, 2} : Found{};
    case '!':
      return doubled('=') ? Found{Operator::different, 6, 2} : Found{};
    case '&':
      return doubled('&') ? Found{Operator::both, 2, 2} : Found{Operator::bit_and, 5, 1};
    case '^':
      return {Operator::bit_xor, 4, 1};
    case '|':
      return doubled('|') ? Found{Operator::either, 1, 2} : Found{Operator::bit_or, 3, 1};
    default:
      return {};
  }
}

Value apply_unary(char op, Value value) {
  if (op == '-') return {uint64_t{0} - value.bits, value.is_unsigned};
  if (op == '~') return {~value.bits, true};
  if (op == '!') return {value.bits == 0};
  return value;
}

Value apply(Operator op, Value a, Value b, int line) {
  const auto signed_a = static_cast<int64_t>(a.bits), signed_b = static_cast<int64_t>(b.bits);
  const bool is_unsigned = a.is_unsigned || b.is_unsigned;  // the usual arithmetic conversions
  const bool less = is_unsigned ? a.bits < b.bits : signed_a < signed_b;
  const bool greater = is_unsigned ? a.bits > b.bits : signed_a > signed_b;
  switch (op) {
    case Operator::multiply:
      return {a.bits * b.bits, is_unsigned};
    case Operator::divide:
      if (b.bits == 0) syntax_error(line, "division by zero in constant expression");
      if (is_unsigned) return {a.bits / b.bits, true};
      if (signed_b == -1) return {uint64_t{0} - a.bits};
      return {static_cast<uint64_t>(signed_a / signed_b)};
    case Operator::remainder:  // of unsigned numbers, whatever they are, unlike C's
      if (b.bits == 0) syntax_error(line, "division by zero in constant expression");
      return {a.bits % b.bits};
    case Operator::add:
      return {a.bits + b.bits, is_unsigned};
    case Operator::subtract:
      return {a.bits - b.bits, is_unsigned};
    case Operator::shift_left:
      return {b.bits < 64 ? a.bits << b.bits : 0, a.is_unsigned};
    case Operator::shift_right:
      if (a.is_unsigned) return {b.bits < 64 ? a.bits >> b.bits : 0, true};
      return {static_cast<uint64_t>(signed_a >> (b.bits < 64 ? b.bits : 63))};
    case Operator::less:
      return {less};
    case Operator::less_or_equal:
      return {!greater};
    case Operator::greater:
      return {greater};
    case Operator::greater_or_equal:
      return {!less};
    case Operator::equal:
      return {a.bits == b.bits};
    case Operator::different:
      return {a.bits != b.bits};
    case Operator::bit_and:
      return {a.bits & b.bits, is_unsigned};
    case Operator::bit_xor:
      return {a.bits ^ b.bits, is_unsigned};
    case Operator::bit_or:
      return {a.bits | b.bits, is_unsigned};
    case Operator::both:
      return {a.bits != 0 && b.bits != 0};
    case Operator::either:
      return {a.bits != 0 || b.bits != 0};
    case Operator::none:
      break;
  }
  return a;
}

class ExpressionParser {
 public:
  explicit ExpressionParser(Lexer& lexer) : lexer_(lexer) {}

  // All operators of PTX, from the weakest on. `taken`: see parse_constant_expression().
  Value conditional(char taken, int depth) {
    check(depth);
    const Value condition = binary(taken, 1, depth + 1);
    if (!is(lexer_.peek(), '?')) return condition;
    lexer_.next();
    const Value if_true = conditional('\0', depth + 1);
    expect(':');
    const Value if_false = conditional('\0', depth + 1);
    return {(condition.bits != 0 ? if_true : if_false).bits, if_true.is_unsigned || if_false.is_unsigned};
  }

 private:
  void check(int depth) const {
    if (depth > max_nesting) syntax_error(lexer_.peek().line, "constant expression is nested too deeply");
  }

  void expect(char c) {
    if (!is(lexer_.peek(), c))
      syntax_error(lexer_.peek().line, std::string("'") + c + "' expected in constant expression");
    lexer_.next();
  }

  Value binary(char taken, int least, int depth) {
    check(depth);
    Value value = unary(depth + 1);
    if (taken != '\0') value = apply_unary(taken, value);
    for (;;) {
      const Found found = find_operator(lexer_);
      if (found.strength == 0 || found.strength < least) return value;
      const int line = lexer_.peek().line;
      for (int i = 0; i < found.tokens; ++i) lexer_.next();
      value = apply(found.which, value, binary('\0', found.strength + 1, depth + 1), line);
    }
  }

  Value unary(int depth) {
    check(depth);
    const Token token = lexer_.next();
    if (token.kind == TokenKind::integer)
      return {token.bits, token.text.ends_with('U') || token.bits > static_cast<uint64_t>(INT64_MAX)};
    if (token.kind == TokenKind::word && token.text == "WARP_SZ") return {32};
    for (const char op : {'-', '+', '~', '!'}) {
      if (is(token, op)) return apply_unary(op, unary(depth + 1));
    }
    if (is(token, '(')) return parentheses(depth + 1);
    syntax_error(token.line, "number expected, found '" + std::string(token.text) + "'");
  }

  // Behind '(': an expression, or the type of a cast.
  Value parentheses(int depth) {
    const Token first = lexer_.peek();
    if (first.kind == TokenKind::directive && (first.text == ".s64" || first.text == ".u64")) {
      lexer_.next();
      expect(')');
      return {unary(depth + 1).bits, first.text == ".u64"};
    }
    const Value value = conditional('\0', depth + 1);
    expect(')');
    return value;
  }

  Lexer& lexer_;
};

}  // namespace

uint64_t parse_constant_expression(Lexer& lexer, char taken) {
  return ExpressionParser(lexer).conditional(taken, 0).bits;
}

}  // namespace softgpu::ptx
