// Reader of cubins: ELF files of machine code for one architecture. It takes out what a driver tells about
// kernels and variables; the code itself is not looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpupool::image {

struct CubinParameter {
  std::uint32_t offset = 0, size = 0;  ///< bytes, in the packed parameter buffer
};

struct CubinKernel {
  std::string name;
  std::vector<CubinParameter> parameters;
  std::uint32_t parameter_bytes = 0;
  std::uint32_t shared_bytes = 0;               ///< static
  std::uint32_t local_bytes = 0;                ///< per thread
  std::uint32_t registers = 0;                  ///< per thread
  std::uint32_t max_block[3] = {0, 0, 0};       ///< .maxntid; zeros when the code does not say
  std::uint32_t required_block[3] = {0, 0, 0};  ///< .reqntid
};

struct CubinVariable {
  std::string name;
  std::uint64_t size = 0, alignment = 1;
  bool is_constant = false;
  std::span<const std::byte> initial;  ///< in the image; empty for zeros. Addresses inside are not filled in
};

struct Cubin {
  unsigned architecture = 0;  ///< 75, 90, 120, ...
  std::vector<CubinKernel> kernels;
  std::vector<CubinVariable> variables;  ///< of every linkage; static shared memory is not among them
  std::uint64_t device_bytes = 0;        ///< code, constants and variables
  bool has_addresses = false;            ///< initial values that are filled in with addresses
  bool has_managed = false;              ///< variables that the driver moves between host and device
};

/// Nothing when `bytes` are no well-formed cubin. Reads nothing outside of them.
std::optional<Cubin> read_cubin(std::span<const std::byte> bytes);

/// The architecture alone, from the header.
std::optional<unsigned> cubin_architecture(std::span<const std::byte> bytes);

/// Machine code runs on devices of its own major version, from its minor version upwards.
constexpr bool machine_code_fits(unsigned architecture, unsigned capability) {
  return architecture / 10 == capability / 10 && architecture <= capability;
}

}  // namespace gpupool::image
