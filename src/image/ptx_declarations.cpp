#include "image/ptx_declarations.h"

#include <algorithm>
#include <charconv>

namespace gpupool::image {
namespace {

constexpr std::uint64_t most = most_ptx_bytes;

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? most : std::min(product, most);
}

bool is_name(std::string_view word) {
  const char c = word.front();
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}

/// Walks over the words of PTX text: comments and strings are left out, punctuation is a word of its own.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  /// Empty at the end.
  std::string_view next() {
    skip();
    if (at_ >= text_.size()) return {};
    const std::size_t begin = at_;
    if (!in_word(text_[at_])) return text_.substr(at_++, 1);
    while (at_ < text_.size() && in_word(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

 private:
  static bool in_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '$' || c == '%' || c == '.';
  }
  void skip() {
    while (at_ < text_.size()) {
      if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (text_.substr(at_, 2) == "/*") {
        const std::size_t end = text_.find("*/", at_ + 2);
        at_ = end == std::string_view::npos ? text_.size() : end + 2;
      } else if (text_[at_] == '"') {
        const std::size_t end = text_.find('"', at_ + 1);
        at_ = end == std::string_view::npos ? text_.size() : end + 1;
      } else if (text_[at_] == ' ' || (text_[at_] >= '\t' && text_[at_] <= '\r')) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// 0 for a word that is no type of a variable.
std::uint64_t bytes_of_type(std::string_view word) {
  if (word == ".texref" || word == ".samplerref" || word == ".surfref") return 8;
  const std::size_t digits = word.find_first_of("0123456789");
  if (word.size() < 3 || word[0] != '.' || digits == std::string_view::npos ||
      std::string_view("bsufe").find(word[1]) == std::string_view::npos) {
    return 0;
  }
  unsigned bits = 0;
  const auto [end, error] = std::from_chars(word.data() + digits, word.data() + word.size(), bits);
  return error == std::errc{} && bits >= 4 && bits <= 128 ? std::max(bits / 8, 1u) : 0;
}

/// One statement at module scope, word by word.
class Statement {
 public:
  explicit Statement(PtxDeclarations& found) : found_(&found) {}

  [[nodiscard]] bool in_value() const { return in_value_; }

  /// `nested`: in the braces of a value.
  void word(std::string_view word, bool nested) {
    if (in_value_) {
      if (word == "," && !nested) {
        variable();
      } else if (word == ",") {
        ++elements_;
      } else if (is_name(word) && word != "WARP_SZ") {
        addresses_ = true;
      }
    } else if (word == "(" || word == ")") {
      parentheses_ += word == "(" ? 1 : -1;
    } else if (word == "[" || word == "]") {
      in_brackets_ = word == "[";
      unsized_ = unsized_ || in_brackets_;
    } else if (in_brackets_) {
      dimension(word);
    } else if (word == "=") {
      in_value_ = true;
      elements_ = 1;
    } else if (word == "," && parentheses_ == 0) {
      variable();  // another one of the same type
    } else if (word == ".global" || word == ".const") {
      stored_ = true;
    } else if (word == ".managed") {
      managed_ = true;
    } else if (word == ".v2" || word == ".v4") {
      vector_ = word[2] == '2' ? 2 : 4;
    } else if (word == ".extern") {
      external_ = true;
    } else if (word == ".func" || word == ".entry") {
      function_ = true;
    } else if (is_name(word)) {
      if (parentheses_ == 0) name_ = word;
    } else if (type_.empty() && bytes_of_type(word) != 0) {
      type_ = word;
    }
  }
  void end() {
    if (function_ && !name_.empty()) found_->functions.push_back(name_);
    variable();
    *this = Statement(*found_);
  }

 private:
  void dimension(std::string_view word) {
    const bool hex = word.starts_with("0x") || word.starts_with("0X");
    const std::string_view digits = hex ? word.substr(2) : word;
    std::uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
    if (error == std::errc::result_out_of_range) value = most;
    if (error == std::errc::invalid_argument) return;
    count_ = times(count_, value);
    unsized_ = false;
  }
  void variable() {
    if (stored_ && !external_ && !function_ && !type_.empty() && !name_.empty()) {
      const std::uint64_t elements = unsized_ ? std::max<std::uint64_t>(elements_, 1) : count_;
      const std::uint64_t bytes = times(times(bytes_of_type(type_), vector_), elements);
      found_->variables.push_back({name_, bytes, managed_, type_.ends_with("ref"), addresses_});
    }
    name_ = {};
    in_value_ = unsized_ = addresses_ = false;
    count_ = 1;
    elements_ = 0;
  }

  PtxDeclarations* found_;
  std::string_view name_, type_;
  bool in_value_ = false, in_brackets_ = false, unsized_ = false, addresses_ = false;
  bool stored_ = false, managed_ = false, external_ = false, function_ = false;
  int parentheses_ = 0;
  std::uint64_t vector_ = 1, count_ = 1, elements_ = 0;
};

}  // namespace

PtxDeclarations ptx_declarations(std::string_view text) {
  PtxDeclarations found;
  Statement statement(found);
  Words words(text);
  int depth = 0;
  bool body = false;  // of a function or a section: its braces end the statement
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    if (word == "{") {
      if (depth++ == 0) body = !statement.in_value();
    } else if (word == "}") {
      depth = std::max(depth - 1, 0);
      if (depth == 0 && body) statement.end();
    } else if (depth > 0) {
      if (!body) statement.word(word, true);
    } else if (word == ";" || word == ".version" || word == ".target" || word == ".address_size") {
      statement.end();  // `.version 8.4`, `.target sm_90`, `.address_size 64` have no semicolon
    } else {
      statement.word(word, false);
    }
  }
  return found;
}

}  // namespace gpupool::image
