#include "softgpu/ptx/parser.h"

#include <charconv>
#include <cmath>

#include "softgpu/ptx/parser_state.h"

namespace softgpu::ptx {
namespace {

Dim3 parse_dimensions(TokenReader& in) {
  Dim3 dims{1, 1, 1};
  uint32_t* const parts[] = {&dims.x, &dims.y, &dims.z};
  for (int i = 0;; ++i) {
    const uint64_t value = in.expect_integer();
    if (value == 0 || value > 0x7fffffff) in.fail("dimension out of range");
    if (i > 2) in.fail("at most three dimensions");
    *parts[i] = static_cast<uint32_t>(value);
    if (!in.accept(',')) return dims;
  }
}

Function parse_function(TokenReader& in, const std::vector<Variable>& variables, Linkage linkage,
                        bool is_entry) {
  Function function;
  function.is_entry = is_entry;
  function.linkage = linkage;
  function.line = in.peek().line;
  if (in.accept_directive(".attribute")) {
    in.expect('(');
    while (!in.at_end() && !in.at(')')) in.next();
    in.expect(')');
  }
  if (!is_entry && in.at('(')) function.returns = in.parse_parameter_list();
  function.name = in.expect_word("function name");
  if (in.at('(')) function.parameters = in.parse_parameter_list();
  while (in.peek().kind == TokenKind::directive) {
    const Token token = in.next();
    if (token.text == ".maxntid") {
      function.max_block = parse_dimensions(in);
    } else if (token.text == ".reqntid") {
      function.required_block = parse_dimensions(in);
    } else if (token.text == ".minnctapersm" || token.text == ".maxnctapersm" || token.text == ".maxnreg" ||
               token.text == ".maxclusterrank" || token.text == ".abi_preserve" ||
               token.text == ".abi_preserve_control") {
      in.expect_integer();  // tuning hints
    } else if (token.text == ".reqnctapercluster") {
      const Dim3 cluster = parse_dimensions(in);
      if (cluster.x * cluster.y * cluster.z != 1) {
        unsupported(token.line, "clusters of more than one block are not supported");
      }
    } else if (token.text == ".pragma") {
      while (!in.at_end() && !in.at(';')) in.next();
      in.expect(';');
    } else if (token.text != ".noreturn" && token.text != ".explicitcluster" &&
               token.text != ".blocksareclusters") {
      unsupported(token.line, "function directive '" + std::string(token.text) + "' is not supported");
    }
  }
  if (in.accept(';')) return function;
  function.has_body = true;
  parse_body(in, variables, function);
  end_locations(in.peek().line, in.debug);
  return function;
}

void parse_target(TokenReader& in, Module& module) {
  do {
    const std::string_view name = in.expect_word("target");
    if (name.starts_with("sm_") || name.starts_with("compute_")) {
      const std::string_view digits = name.substr(name.find('_') + 1);
      int value = 0;
      std::from_chars(digits.data(), digits.data() + digits.size(), value);
      module.target = value;
    }
  } while (in.accept(','));
}

}  // namespace

Module parse(std::string_view source) {
  TokenReader in(source);
  Module module;
  while (!in.at_end()) {
    if (in.accept_debug_directive() || in.accept(';')) continue;
    if (in.accept_directive(".version")) {
      const Token number = in.next();
      double value = 0;
      const auto [end, code] =
          std::from_chars(number.text.data(), number.text.data() + number.text.size(), value);
      if (code != std::errc{} || value < 1 || value > 99) syntax_error(number.line, "PTX version expected");
      module.version = static_cast<int>(std::lround(value * 10));
      continue;
    }
    if (in.accept_directive(".target")) {
      parse_target(in, module);
      continue;
    }
    if (in.accept_directive(".address_size")) {
      const int line = in.peek().line;
      if (in.expect_integer() != 64) unsupported(line, "only 64-bit addresses are supported");
      continue;
    }
    if (in.accept_directive(".alias")) {
      Alias alias;
      alias.line = in.peek().line;
      alias.name = in.expect_word("function name");
      in.expect(',');
      alias.target = in.expect_word("function name");
      in.expect(';');
      module.aliases.push_back(alias);
      continue;
    }
    Linkage linkage = Linkage::local;
    for (;;) {
      if (in.accept_directive(".visible"))
        linkage = Linkage::visible;
      else if (in.accept_directive(".extern"))
        linkage = Linkage::external;
      else if (in.accept_directive(".weak"))
        linkage = Linkage::weak;
      else if (in.accept_directive(".common"))
        linkage = Linkage::common;
      else
        break;
    }
    if (in.accept_directive(".entry")) {
      // Entries are visible to the host whatever their linkage says.
      module.functions.push_back(
          parse_function(in, module.variables, linkage == Linkage::local ? Linkage::visible : linkage, true));
    } else if (in.accept_directive(".func")) {
      module.functions.push_back(parse_function(in, module.variables, linkage, false));
    } else if (in.peek().kind == TokenKind::directive) {
      in.parse_variables(linkage, module.variables);
    } else {
      in.fail("directive expected");
    }
  }
  module.debug = std::move(in.debug);
  if (module.version == 0) syntax_error(1, "no .version directive: this is not PTX");
  return module;
}

}  // namespace softgpu::ptx
