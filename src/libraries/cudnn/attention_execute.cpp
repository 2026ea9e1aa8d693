// Attention as it is launched: with the addresses and numbers of a variant pack.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "libraries/cudnn/attention.h"
#include "libraries/cudnn/handle.h"
#include "libraries/cudnn/tensors.h"

namespace gpupool::cudnn {
namespace {

using operations::Attention;

constexpr int wide_integer = 10;  // of cudnnDataType_t

/// The addresses of a pack.
class Pack {
 public:
  explicit Pack(const Content& pack)
      : ids_(pack.list<std::int64_t>(pack_unique_ids)), pointers_(pack.list<std::uint64_t>(pack_pointers)) {}

  /// 0: the pack has none.
  [[nodiscard]] std::uint64_t address(std::int64_t id) const {
    const auto found = std::find(ids_.begin(), ids_.end(), id);
    return found == ids_.end() ? 0 : pointers_[static_cast<std::size_t>(found - ids_.begin())];
  }
  /// A number in host memory.
  [[nodiscard]] std::optional<double> number(const Given& given) const {
    const auto* const at = reinterpret_cast<const void*>(address(given.id));
    if (at == nullptr || !given.by_value || given.elements != 1) return std::nullopt;
    if (given.type == wide_integer) {
      std::int64_t value = 0;
      std::memcpy(&value, at, sizeof value);
      return static_cast<double>(value);
    }
    const auto type = element_of(given.type);
    return type ? number_of(at, *type) : std::nullopt;
  }

 private:
  std::vector<std::int64_t> ids_;
  std::vector<std::uint64_t> pointers_;
};

bool put_scale(const AttentionProgram& program, const Pack& pack, operations::Factor& into) {
  if (!program.scale) {
    into.value.words[0] = std::bit_cast<std::uint64_t>(1.0);
    return true;
  }
  if (program.scale->by_value) {
    const auto found = pack.number(*program.scale);
    into.value.words[0] = std::bit_cast<std::uint64_t>(found.value_or(0));
    return found.has_value();
  }
  const auto type = element_of(program.scale->type);
  into.on_device = 1;
  into.type = type.value_or(Element::f32);
  into.value.words[0] = pack.address(program.scale->id);
  return type.has_value() && into.value.words[0] != 0;
}

bool put_lengths(const std::optional<Given>& given, const Pack& pack, operations::AttentionLengths& into) {
  if (!given) return true;
  into.address = pack.address(given->id);
  into.stride = given->stride;
  into.wide = given->type == wide_integer;
  return into.address != 0;
}

bool put_seed(const std::optional<Given>& given, const Pack& pack, operations::AttentionNumber& into) {
  if (!given) return true;
  const std::uint64_t address = pack.address(given->id);
  if (address == 0 || given->elements != 1) return false;
  into.wide = given->type == wide_integer;
  into.on_device = !given->by_value;
  into.value = address;
  if (!given->by_value) return true;
  into.value = 0;
  std::memcpy(&into.value, reinterpret_cast<const void*>(address), into.wide != 0 ? 8 : 4);
  return true;
}

bool put_bound(const std::vector<AddedNumber>& numbers, const Pack& pack, operations::AttentionBound& bound) {
  for (const AddedNumber& added : numbers) {
    const auto found = pack.number(added.number);
    constexpr double most = 0x1p31;
    if (!found || !(std::fabs(*found) <= most)) return false;
    bound.shift += added.sign * static_cast<std::int64_t>(*found);
  }
  return true;
}

/// Whether what the operation does is what the graph's own numbers say.
bool as_usual(const AttentionProgram& program, const Pack& pack) {
  constexpr double lowest = -1e30, near = 1e-3;
  const double kept = 1 - program.operation.rate;
  const auto all = [&](const std::vector<Given>& numbers, auto good) {
    return std::all_of(numbers.begin(), numbers.end(), [&](const Given& given) {
      const auto found = pack.number(given);
      return found && good(*found);
    });
  };
  return all(program.fills, [&](double value) { return value <= lowest; }) &&
         all(program.kept, [&](double value) { return std::fabs(value * kept - 1) < near; }) &&
         all(program.kept_inverses, [&](double value) { return std::fabs(value / kept - 1) < near; });
}

}  // namespace

int complete(const AttentionProgram& program, const Content& content, Attention& operation) {
  const Pack pack(content);
  operation = program.operation;
  for (const AttentionProgram::Place& place : program.places) {
    (operation.*place.role).address = pack.address(place.id);
    if ((operation.*place.role).address == 0) return bad_param;
  }
  if (!put_scale(program, pack, operation.scale) ||
      !put_lengths(program.q_lengths, pack, operation.q_lengths) ||
      !put_lengths(program.k_lengths, pack, operation.k_lengths) ||
      !put_seed(program.seed, pack, operation.seed) || !put_seed(program.offset, pack, operation.offset) ||
      !put_bound(program.left, pack, operation.left) || !put_bound(program.right, pack, operation.right))
    return bad_param;
  if (!as_usual(program, pack)) {
    last_error() =
        "a cuDNN graph of attention: masks fill with another number than minus infinity, or what is kept "
        "is not divided by its probability";
    return not_supported_graph_pattern;
  }
  return success;
}

}  // namespace gpupool::cudnn
