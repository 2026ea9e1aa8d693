// PTX text -> tokens. Comments and preprocessor lines are skipped.
#pragma once

#include <cstdint>
#include <string_view>

namespace softgpu::ptx {

enum class TokenKind : uint8_t {
  end,
  word,        // identifier, with dotted suffixes: "ld.global.u32", "%tid.x", "$L__BB0_1", "foo"
  directive,   // ".reg", ".shared::cta"
  integer,     // value in `bits`
  real32,      // 0fXXXXXXXX, bit pattern in `bits`
  real64,      // 0dX... or a decimal number, bit pattern of the double in `bits`
  string,      // text without quotes, escapes untouched
  punctuation  // one character, in text
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;
  uint64_t bits = 0;
  int line = 1;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source);

  [[nodiscard]] const Token& peek() const { return current_; }
  Token next();
  // Skips what is left of the line on which the current token stands.
  void skip_line(int line);

 private:
  void advance();
  void skip_blank();
  void lex_number();
  [[nodiscard]] char at(size_t ahead = 0) const {
    return position_ + ahead < source_.size() ? source_[position_ + ahead] : '\0';
  }

  std::string_view source_;
  size_t position_ = 0;
  int line_ = 1;
  Token current_;
};

}  // namespace softgpu::ptx
