#include "softgpu/differential/catalogue.h"

#include <algorithm>
#include <map>
#include <set>

#include "softgpu/exec/program/opcode_table.h"
#include "softgpu/reference/matrix_form.h"

namespace softgpu::differential {
namespace {

int bits_of(char letter) {
  switch (letter) {
    case 'p':
      return 1;
    case 'h':
      return 16;
    case 'w':
      return 32;
    case 'x':
      return 64;
    case 'q':
      return 128;
    case '#':
      return 32;
    default:
      return 0;
  }
}

// The widths that a signature of the table says; false for those with vectors.
struct Widths {
  std::vector<int> results, sources;
  bool pair = false, carry_in = false, carry_out = false, regular = true;
};
Widths widths_of(std::string_view signature) {
  Widths made;
  bool sources = false;
  for (const char letter : signature) {
    if (letter == '=') {
      sources = true;
    } else if (letter == ':') {
      made.pair = true;
    } else if (letter == 'c') {
      (sources ? made.carry_in : made.carry_out) = true;
    } else if (letter == '?') {
      made.sources.pop_back();  // may be absent, and is left out
    } else if (bits_of(letter) != 0) {
      (sources ? made.sources : made.results).push_back(bits_of(letter));
    } else {
      made.regular = false;
    }
  }
  return made;
}

// What the generator writes without the table's help, or the machine of the reference does by itself.
bool is_done_elsewhere(std::string_view name) {
  static const std::set<std::string_view> bases_done_elsewhere{
      "mov",      "cvta",  "isspacep",  "membar",     "fence",   "exit",          "shfl",
      "vote",     "match", "redux",     "bar",        "trap",    "brkpt",         "nanosleep",
      "prefetch", "elect", "movmatrix", "activemask", "pmevent", "griddepcontrol"};
  const bool synchronised = name.find(".sync") != std::string_view::npos;
  const std::string_view base = name.substr(0, name.find('.'));
  if (base == "shfl" || base == "vote") return synchronised;
  return bases_done_elsewhere.contains(base);
}

}  // namespace

Catalogue::Catalogue() {
  std::vector<std::pair<std::string, std::string>> names;
  const OpcodeTable& table = opcode_table();
  for (const std::string_view name : table.names()) names.emplace_back(name, table.find(name)->signature);
  std::map<std::string, std::vector<CatalogueEntry>> by_base;
  for (const auto& [name, signature] : names) {
    if (name.starts_with("@atom.")) atomics_.push_back(name.substr(6));
    if (name.starts_with('@')) continue;
    if (const auto form = reference::matrix_form(name)) {
      matrices_[form->a.bits == 8 && form->a.format != nullptr].push_back(name);
      ++compared_;
      continue;
    }
    const reference::Operation* const operation = reference::find_operation(name);
    if (operation == nullptr) {
      if (is_done_elsewhere(name)) {
        ++compared_;
      } else {
        not_compared_.push_back(name);
      }
      continue;
    }
    const Widths widths = widths_of(signature);
    auto results = operation->results;
    if (!widths.pair && results.size() == 2 && results[0] == 1) results.pop_back();
    if (!widths.regular || widths.results != results || widths.sources != operation->sources ||
        widths.carry_in != operation->reads_carry || widths.carry_out != operation->writes_carry) {
      contradictions_.push_back(name + " " + signature);
      continue;
    }
    ++compared_;
    const CatalogueEntry entry{name, operation, widths.pair};
    if (operation->exactness == reference::Exactness::bounded) {
      approximate_.push_back(entry);
    } else if (operation->reads_carry || operation->writes_carry) {
      carries_[operation->reads_carry][operation->writes_carry].push_back(entry);
    } else {
      by_base[name.substr(0, name.find('.'))].push_back(entry);
    }
  }
  for (auto& [base, entries] : by_base) families_.push_back(Family{base, std::move(entries)});
}

const CatalogueEntry& Catalogue::choose(Random& random) const {
  return random.one_of(random.one_of(families_).entries);
}
const CatalogueEntry& Catalogue::choose_approximate(Random& random) const {
  return random.one_of(approximate_);
}
const std::string& Catalogue::choose_matrix(Random& random) const {
  return random.one_of(matrices_[random.chance(25)]);
}
const CatalogueEntry& Catalogue::choose_carry(Random& random, bool reads, bool writes) const {
  return random.one_of(carries_[reads][writes]);
}

}  // namespace softgpu::differential
