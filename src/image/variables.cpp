#include "image/variables.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>

#include "image/cubin.h"
#include "image/fatbin.h"

namespace gpupool::image {
namespace {

bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}
bool in_name(char c) {
  return begins_name(c) || (c >= '0' && c <= '9');
}

/// One statement after the other, without comments; what is in braces is left out.
class Statements {
 public:
  explicit Statements(std::string_view text) : text_(text) {}

  /// False at the end of the text.
  bool next(std::string& out) {
    out.clear();
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (skip_comment()) continue;
      if (c == '"') {
        skip_string();
        continue;
      }
      ++at_;
      if (c == '{') {
        ++depth_;
        // The body of a function ends its statement; the braces of an initial value do not.
        in_value_ = in_value_ || out.find('=') != std::string::npos;
        continue;
      }
      if (c == '}') {
        depth_ = depth_ > 0 ? depth_ - 1 : 0;
        if (depth_ == 0 && !in_value_) return true;
        continue;
      }
      if (depth_ > 0) continue;
      if (c == ';') {
        in_value_ = false;
        return true;
      }
      out += c;
    }
    return false;
  }

 private:
  bool skip_comment() {
    if (text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (text_.substr(at_, 2) == "/*") {
      const std::size_t end = text_.find("*/", at_ + 2);
      at_ = end == std::string_view::npos ? text_.size() : end + 2;
    } else {
      return false;
    }
    return true;
  }
  void skip_string() {
    const std::size_t end = text_.find('"', at_ + 1);
    at_ = end == std::string_view::npos ? text_.size() : end + 1;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool in_value_ = false;
};

/// The words of a statement up to its value, with the directives' dots; dimensions are left out. A directive
/// that is on a line of its own without a semicolon (.version) stands before the others.
struct DeclarationWords {
  std::vector<std::string> directives, names;
};

DeclarationWords words_of(std::string_view statement) {
  DeclarationWords words;
  std::size_t at = 0;
  while (at < statement.size() && statement[at] != '=') {
    const char c = statement[at];
    if (c == '[') {
      const std::size_t end = statement.find(']', at);
      at = end == std::string_view::npos ? statement.size() : end + 1;
    } else if (c == '.' || begins_name(c)) {
      const std::size_t from = at++;
      while (at < statement.size() && in_name(statement[at])) ++at;
      (c == '.' ? words.directives : words.names).emplace_back(statement.substr(from, at - from));
    } else if (c >= '0' && c <= '9') {
      while (at < statement.size() && (in_name(statement[at]) || statement[at] == '.')) ++at;
    } else {
      ++at;
    }
  }
  return words;
}

/// Where the first of the directives with an own line ends: they take no semicolon.
std::string_view without_header(std::string_view statement) {
  for (const std::string_view directive : {".version", ".target", ".address_size", ".file", ".loc"}) {
    for (std::size_t at = statement.find(directive); at != std::string_view::npos;
         at = statement.find(directive)) {
      const std::size_t end = statement.find('\n', at);
      if (end == std::string_view::npos) return {};
      statement.remove_prefix(end + 1);
    }
  }
  return statement;
}

}  // namespace

std::vector<std::string> ptx_variables(std::string_view text) {
  std::vector<std::string> found;
  Statements statements(text);
  for (std::string statement; statements.next(statement);) {
    const DeclarationWords words = words_of(without_header(statement));
    const auto has = [&](std::string_view directive) {
      return std::find(words.directives.begin(), words.directives.end(), directive) != words.directives.end();
    };
    if (!has(".global") && !has(".const")) continue;
    if (has(".entry") || has(".func") || has(".extern") || has(".texref") || has(".surfref") ||
        has(".samplerref")) {
      continue;
    }
    found.insert(found.end(), words.names.begin(), words.names.end());
  }
  return found;
}

std::optional<std::vector<std::string>> variable_names(std::span<const std::byte> content) {
  const auto text = [&] {
    std::string_view all(reinterpret_cast<const char*>(content.data()), content.size());
    return all.substr(0, all.find('\0'));
  };
  if (const auto cubin = read_cubin(content)) {
    std::vector<std::string> names;
    for (const CubinVariable& variable : cubin->variables) names.push_back(variable.name);
    return names;
  }
  std::uint32_t magic = 0;
  if (content.size() >= sizeof(magic)) std::memcpy(&magic, content.data(), sizeof(magic));
  if (magic != kFatbinMagic) {
    const std::string_view ptx = text();
    if (ptx.find(".version") == std::string_view::npos) return std::nullopt;
    return ptx_variables(ptx);
  }
  std::set<std::string> names;
  bool readable = false;
  for (const FatbinEntry& entry : fatbin_entries(content)) {
    if (entry.kind == FatbinEntry::Kind::other) continue;
    const auto inside = entry.kind == FatbinEntry::Kind::ptx ? ptx_text(entry) : entry_content(entry);
    if (!inside) return std::nullopt;
    const auto of_entry = variable_names(std::as_bytes(std::span(*inside)));
    if (!of_entry) return std::nullopt;
    names.insert(of_entry->begin(), of_entry->end());
    readable = true;
  }
  if (!readable) return std::nullopt;
  return std::vector<std::string>(names.begin(), names.end());
}

bool uses_device_heap(std::span<const std::byte> content) {
  std::string_view bytes(reinterpret_cast<const char*>(content.data()), content.size());
  if (cubin_architecture(content)) {
    // Its table of symbols has the name of what it does not define itself.
    return bytes.find(std::string_view("\0malloc\0", 8)) != std::string_view::npos;
  }
  std::uint32_t magic = 0;
  if (content.size() >= sizeof(magic)) std::memcpy(&magic, content.data(), sizeof(magic));
  if (magic == kFatbinMagic) {
    const auto entries = fatbin_entries(content);
    return std::any_of(entries.begin(), entries.end(), [](const FatbinEntry& entry) {
      const auto inside = entry.kind == FatbinEntry::Kind::ptx ? ptx_text(entry) : entry_content(entry);
      return entry.kind != FatbinEntry::Kind::other && inside &&
             uses_device_heap(std::as_bytes(std::span(*inside)));
    });
  }
  bytes = bytes.substr(0, bytes.find('\0'));
  if (bytes.find("malloc") == std::string_view::npos) return false;
  Statements statements(bytes);
  for (std::string statement; statements.next(statement);) {
    const DeclarationWords words = words_of(without_header(statement));
    const auto has = [](const std::vector<std::string>& all, std::string_view one) {
      return std::find(all.begin(), all.end(), one) != all.end();
    };
    if (has(words.directives, ".func") && has(words.names, "malloc")) return true;
  }
  return false;
}

}  // namespace gpupool::image
