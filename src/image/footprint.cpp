#include "image/footprint.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "image/cubin.h"
#include "image/fatbin.h"

namespace gpupool::image {
namespace {

constexpr std::uint64_t kMost = std::uint64_t{1} << 50;

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMost : std::min(product, kMost);
}

/// Walks over the words of PTX text: comments and strings are left out, punctuation is a word of its own.
class PtxWords {
 public:
  explicit PtxWords(std::string_view text) : text_(text) {}

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
class PtxDeclaration {
 public:
  explicit PtxDeclaration(Footprint& total) : total_(&total) {}

  void word(std::string_view word) {
    if (in_value_) {
      elements_ += word == ",";
    } else if (word == "[") {
      in_brackets_ = true;
      unsized_ = true;
    } else if (word == "]") {
      in_brackets_ = false;
    } else if (in_brackets_) {
      dimension(word);
    } else if (word == "=") {
      in_value_ = true;
      elements_ = 1;
    } else if (word == ",") {
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
    } else if (type_ == 0) {
      type_ = bytes_of_type(word);
    }
  }
  void end() {
    variable();
    *this = PtxDeclaration(*total_);
  }

 private:
  void dimension(std::string_view word) {
    const bool hex = word.starts_with("0x") || word.starts_with("0X");
    const std::string_view digits = hex ? word.substr(2) : word;
    std::uint64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
    if (error == std::errc::result_out_of_range) value = kMost;
    if (error == std::errc::invalid_argument) return;
    count_ = times(count_, value);
    unsized_ = false;
  }
  void variable() {
    if (stored_ && !external_ && !function_ && type_ != 0) {
      const std::uint64_t elements = unsized_ ? std::max<std::uint64_t>(elements_, 1) : count_;
      const std::uint64_t size = times(times(type_, vector_), elements);
      total_->bytes = std::min(kMost, total_->bytes + size);
      total_->managed_memory = total_->managed_memory || managed_;
    }
    count_ = 1;
    unsized_ = false;
    elements_ = 0;
  }

  Footprint* total_;
  bool in_value_ = false, in_brackets_ = false, unsized_ = false;
  bool stored_ = false, managed_ = false, external_ = false, function_ = false;
  std::uint64_t vector_ = 1, type_ = 0, count_ = 1, elements_ = 0;
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Footprint of_cubin(std::span<const std::byte> content) {
  const auto cubin = read_cubin(content);
  if (!cubin) return {content.size(), false};
  return {std::min(cubin->device_bytes, kMost), cubin->has_managed};
}

}  // namespace

Footprint ptx_footprint(std::string_view text) {
  Footprint total;
  PtxDeclaration statement(total);
  PtxWords words(text);
  int depth = 0;
  bool body = false;  // of a function: its braces end the statement
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
    if (depth == 0 && (word == ".func" || word == ".entry")) body = true;
    if (word == "{") {
      ++depth;
      continue;
    }
    if (word == "}") {
      depth = std::max(depth - 1, 0);
      if (depth == 0 && body) {
        statement.end();
        body = false;
      }
      continue;
    }
    if (depth > 0 && body) continue;
    if (word == ";") {
      statement.end();
      body = false;
      continue;
    }
    // `.version 8.4`, `.target sm_90`, `.address_size 64` have no semicolon.
    if (depth == 0 && (word == ".version" || word == ".target" || word == ".address_size")) {
      statement.end();
      continue;
    }
    statement.word(word);
  }
  return total;
}

Footprint footprint(std::span<const std::byte> content, unsigned capability) {
  std::uint32_t magic = 0;
  if (content.size() >= sizeof(magic)) std::memcpy(&magic, content.data(), sizeof(magic));
  if (magic == kFatbinMagic) {
    const int device = static_cast<int>(capability);
    if (const auto code = best_machine_code(content, device)) return of_cubin(bytes_of(*code));
    if (const auto text = best_ptx(content, device)) return ptx_footprint(*text);
    return {content.size(), false};
  }
  if (magic == 0x464c457f) return of_cubin(content);  // "\x7fELF"
  return ptx_footprint({reinterpret_cast<const char*>(content.data()), content.size()});
}

}  // namespace gpupool::image
