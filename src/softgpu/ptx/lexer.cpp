#include "softgpu/ptx/lexer.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <string>

#include "softgpu/ptx/error.h"

namespace softgpu::ptx {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool starts_word(char c) {
  return is_letter(c) || c == '_' || c == '$' || c == '%';
}
bool continues_word(char c) {
  return is_letter(c) || is_digit(c) || c == '_' || c == '$';
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Lexer::Lexer(std::string_view source) : source_(source) {
  advance();
}

Token Lexer::next() {
  Token token = current_;
  advance();
  return token;
}

void Lexer::skip_line(int line) {
  while (current_.kind != TokenKind::end && current_.line == line) advance();
}

void Lexer::skip_blank() {
  while (position_ < source_.size()) {
    const char c = source_[position_];
    if (c == '\n') {
      ++line_;
      ++position_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\0' || c == '\f' || c == '\v') {
      ++position_;
    } else if (c == '/' && at(1) == '/') {
      while (position_ < source_.size() && source_[position_] != '\n') ++position_;
    } else if (c == '/' && at(1) == '*') {
      const size_t close = source_.find("*/", position_ + 2);
      if (close == std::string_view::npos) syntax_error(line_, "comment is not closed");
      for (; position_ < close + 2; ++position_) line_ += source_[position_] == '\n';
    } else if (c == '#') {
      while (position_ < source_.size() && source_[position_] != '\n') ++position_;
    } else {
      return;
    }
  }
}

void Lexer::advance() {
  skip_blank();
  current_ = Token{};
  current_.line = line_;
  if (position_ >= source_.size()) return;
  const size_t begin = position_;
  const char c = source_[position_];
  // A word takes its dotted suffixes along, so that an opcode or a special register is one token.
  auto take_component = [&] {
    while (continues_word(at())) ++position_;
    while (at() == ':' && at(1) == ':' && continues_word(at(2))) {
      position_ += 2;
      while (continues_word(at())) ++position_;
    }
  };
  if (starts_word(c)) {
    ++position_;
    while (continues_word(at())) ++position_;
    while (at() == '.' && continues_word(at(1))) {
      ++position_;
      take_component();
    }
    current_.kind = TokenKind::word;
  } else if (c == '.' && continues_word(at(1)) && !is_digit(at(1))) {
    ++position_;
    take_component();
    current_.kind = TokenKind::directive;
  } else if (is_digit(c) || (c == '.' && is_digit(at(1)))) {
    lex_number();
    return;
  } else if (c == '"') {
    const size_t close = [&] {
      for (size_t i = begin + 1; i < source_.size(); ++i) {
        if (source_[i] == '\\') {
          ++i;
        } else if (source_[i] == '"') {
          return i;
        } else if (source_[i] == '\n') {
          break;
        }
      }
      syntax_error(line_, "string is not closed");
    }();
    current_.kind = TokenKind::string;
    current_.text = source_.substr(begin + 1, close - begin - 1);
    position_ = close + 1;
    return;
  } else {
    ++position_;
    current_.kind = TokenKind::punctuation;
  }
  current_.text = source_.substr(begin, position_ - begin);
}

void Lexer::lex_number() {
  const size_t begin = position_;
  auto finish = [&](TokenKind kind, uint64_t bits) {
    current_.kind = kind;
    current_.bits = bits;
    current_.text = source_.substr(begin, position_ - begin);
  };
  auto hex_digits = [&](int exactly) {
    uint64_t value = 0;
    int count = 0;
    for (; hex_value(at()) >= 0; ++position_, ++count) {
      if (count == 16) syntax_error(line_, "number has too many digits");
      value = value << 4 | static_cast<uint64_t>(hex_value(at()));
    }
    if (count == 0 || (exactly != 0 && count != exactly)) syntax_error(line_, "malformed number");
    return value;
  };
  if (at() == '0') {
    const char prefix = at(1);
    if (prefix == 'f' || prefix == 'F') {
      position_ += 2;
      return finish(TokenKind::real32, hex_digits(8));
    }
    if (prefix == 'd' || prefix == 'D') {
      position_ += 2;
      return finish(TokenKind::real64, hex_digits(16));
    }
    if (prefix == 'x' || prefix == 'X') {
      position_ += 2;
      const uint64_t value = hex_digits(0);
      if (at() == 'U') ++position_;
      return finish(TokenKind::integer, value);
    }
    if (prefix == 'b' || prefix == 'B') {
      position_ += 2;
      uint64_t value = 0;
      int count = 0;
      for (; at() == '0' || at() == '1'; ++position_, ++count) {
        if (count == 64) syntax_error(line_, "number has too many digits");
        value = value << 1 | static_cast<uint64_t>(at() - '0');
      }
      if (count == 0) syntax_error(line_, "malformed number");
      if (at() == 'U') ++position_;
      return finish(TokenKind::integer, value);
    }
  }
  while (is_digit(at())) ++position_;
  const bool exponent = (at() == 'e' || at() == 'E') &&
                        (is_digit(at(1)) || ((at(1) == '-' || at(1) == '+') && is_digit(at(2))));
  if (at() == '.' || exponent) {
    if (at() == '.') {
      ++position_;
      while (is_digit(at())) ++position_;
    }
    if ((at() == 'e' || at() == 'E') &&
        (is_digit(at(1)) || ((at(1) == '-' || at(1) == '+') && is_digit(at(2))))) {
      position_ += 2;
      while (is_digit(at())) ++position_;
    }
    double value = 0;
    const auto [end, code] = std::from_chars(source_.data() + begin, source_.data() + position_, value);
    if (code != std::errc{} || end != source_.data() + position_) syntax_error(line_, "malformed number");
    return finish(TokenKind::real64, std::bit_cast<uint64_t>(value));
  }
  const bool octal = source_[begin] == '0' && position_ - begin > 1;
  uint64_t value = 0;
  const auto [end, code] =
      std::from_chars(source_.data() + begin, source_.data() + position_, value, octal ? 8 : 10);
  if (code != std::errc{} || end != source_.data() + position_) syntax_error(line_, "malformed number");
  if (at() == 'U') ++position_;
  finish(TokenKind::integer, value);
}

}  // namespace softgpu::ptx
