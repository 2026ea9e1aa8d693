#include <initializer_list>
#include <string>

#include "libraries/operations/all.h"
#include "libraries/operations/operation.h"

namespace gpupool::operations {
namespace {

/// The engine's function does what the entry's name and parameter say.
void add_entry(std::string& text, const char* name, std::size_t bytes) {
  text += std::string("\n.visible .entry ") + name + "(.param .align 8 .b8 operation[" +
          std::to_string(bytes) + "])\n.maxntid 1, 1, 1\n{\n  call.uni gpupool_operation, ();\n  ret;\n}\n";
}

template <Operation... O>
std::string made(All<O...>) {
  std::string text = ".version 8.0\n.target sm_50\n.address_size 64\n.extern .func gpupool_operation();\n";
  (add_entry(text, O::name, sizeof(O)), ...);
  return text;
}

}  // namespace

const std::string& image() {
  static const std::string* const text = new std::string(made(all_operations));
  return *text;
}

}  // namespace gpupool::operations
