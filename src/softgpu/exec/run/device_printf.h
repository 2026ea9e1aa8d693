// printf as CUDA kernels call it: a format and a buffer of packed arguments, each at its natural alignment.
#pragma once

#include <cstdint>
#include <string>

namespace softgpu {

struct PrintfReader {
  virtual ~PrintfReader() = default;
  [[nodiscard]] virtual bool readable(uint64_t address, uint64_t size) const = 0;
};

// Formats into text. False, with the address in bad, if something that is not readable would be read.
bool device_printf(const PrintfReader& reader, uint64_t format, uint64_t arguments, std::string& text,
                   uint64_t& bad);

}  // namespace softgpu
