// What both ends know about a kernel: name, parameter layout, attributes. Travels with a loaded image.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "wire/bytes.h"

namespace gpupool {

struct KernelParameter {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
};

struct KernelInfo {
  static constexpr std::uint32_t max_parameters = 4096;
  static constexpr std::uint32_t max_parameter_bytes = 32764;  // CUDA's own limit since 12.1
  static constexpr std::size_t attribute_count = 16;           // CU_FUNC_ATTRIBUTE_MAX of CUDA 13

  std::string name;
  bool described = false;  ///< the rest is filled in
  std::vector<KernelParameter> parameters;
  std::uint32_t answered = 0;  ///< bit n: the driver answered attribute n
  std::array<std::int32_t, attribute_count> attributes{};

  /// Bytes of a packed parameter block.
  [[nodiscard]] std::uint32_t parameter_bytes() const {
    std::uint32_t end = 0;
    for (const auto& p : parameters) end = std::max(end, p.offset + p.size);
    return end;
  }

  void encode(wire::Writer& out) const {
    out.put_text(name);
    out.put(static_cast<std::uint8_t>(described));
    if (!described) return;
    out.put(static_cast<std::uint32_t>(parameters.size()));
    for (const auto& p : parameters) out.put(p);
    out.put(answered);
    out.put(attributes);
  }

  /// False when the bytes are too few or the layout is impossible (a parameter outside CUDA's parameter
  /// space).
  [[nodiscard]] static bool decode(wire::Reader& in, KernelInfo& out) {
    out.name = in.get_text();
    out.described = in.get<std::uint8_t>() != 0;
    if (!out.described) return in.ok();
    const auto count = in.get<std::uint32_t>();
    if (!in.ok() || count > max_parameters) return false;
    out.parameters.resize(count);
    for (auto& p : out.parameters) {
      p = in.get<KernelParameter>();
      if (p.offset > max_parameter_bytes || p.size > max_parameter_bytes) return false;
    }
    out.answered = in.get<std::uint32_t>();
    out.attributes = in.get<std::array<std::int32_t, attribute_count>>();
    return in.ok();
  }
};

}  // namespace gpupool
