// What cubins say of themselves is found, and damaged ones are refused without leaving their bytes.
#include "image/cubin.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "image/elf_size.h"
#include "image/test_cubin.h"

using namespace gpupool::image;

namespace {

std::optional<Cubin> read(const std::string& bytes) {
  const std::vector<char> exact(bytes.begin(), bytes.end());  // so that sanitizers see the end
  auto cubin = read_cubin(std::as_bytes(std::span(exact)));
  if (!cubin) return cubin;
  for (const auto& variable : cubin->variables) {
    if (variable.initial.empty()) continue;
    const auto* const begin = reinterpret_cast<const std::byte*>(exact.data());
    CHECK(variable.initial.data() >= begin);
    CHECK(variable.initial.data() + variable.initial.size() <= begin + exact.size());
    CHECK(variable.initial.size() == variable.size);
  }
  for (const auto& kernel : cubin->kernels) {
    for (const auto& parameter : kernel.parameters) {
      CHECK(parameter.offset + parameter.size <= kernel.parameter_bytes);
    }
  }
  return cubin;
}

}  // namespace

TEST_CASE("kernels, their parameters and their needs are read") {
  for (const unsigned architecture : {80u, 120u}) {
    const std::string bytes = TestCubin::make(architecture);
    const auto cubin = read_cubin(std::as_bytes(std::span(bytes)));
    REQUIRE(cubin.has_value());
    CHECK(cubin->architecture == architecture);
    REQUIRE(cubin->kernels.size() == 2);  // a function that kernels call is none
    const CubinKernel& saxpy = cubin->kernels[0];
    CHECK(saxpy.name == "saxpy");
    REQUIRE(saxpy.parameters.size() == 4);
    CHECK(saxpy.parameters[1].offset == 8);
    CHECK(saxpy.parameters[1].size == 1);
    CHECK(saxpy.parameters[2].offset == 16);
    CHECK(saxpy.parameters[2].size == 40);
    CHECK(saxpy.parameters[3].offset == 56);
    CHECK(saxpy.parameter_bytes == 60);
    CHECK(saxpy.registers == 40);
    CHECK(saxpy.shared_bytes == 1024);
    CHECK(saxpy.local_bytes == 16);
    CHECK(saxpy.max_block[0] == 256);
    CHECK(cubin->kernels[1].required_block[1] == 2);
    REQUIRE(cubin->variables.size() == 3);
    CHECK(cubin->variables[0].name == "launches");
    CHECK(static_cast<int>(cubin->variables[0].initial[0]) == 7);
    CHECK(cubin->variables[1].size == 64);
    CHECK(cubin->variables[1].initial.empty());
    CHECK(cubin->variables[2].is_constant);
  }
}

TEST_CASE("a cubin's own headers say how long it is") {
  const std::string bytes = TestCubin::make();
  CHECK(elf_size(bytes.data()) == bytes.size());
}

TEST_CASE("machine code fits devices of its major version from its minor version upwards") {
  CHECK(machine_code_fits(80, 80));
  CHECK(machine_code_fits(80, 86));
  CHECK(machine_code_fits(120, 121));
  CHECK_FALSE(machine_code_fits(86, 80));
  CHECK_FALSE(machine_code_fits(80, 90));
  CHECK_FALSE(machine_code_fits(120, 90));
}

TEST_CASE("what is no cubin is none") {
  CHECK_FALSE(read("").has_value());
  CHECK_FALSE(read("\x7f"
                   "ELF")
                  .has_value());
  std::string host = TestCubin::make();
  host[offsetof(Elf64_Ehdr, e_machine)] = EM_X86_64;
  CHECK_FALSE(read(host).has_value());
}

TEST_CASE("damaged cubins are read without leaving their bounds") {
  const std::string good = TestCubin::make();
  unsigned passed = 0, refused = 0;
  const auto attempt = [&](const std::string& bytes) { read(bytes).has_value() ? ++passed : ++refused; };
  for (std::size_t size = 0; size < good.size(); ++size) CHECK_FALSE(read(good.substr(0, size)).has_value());
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const unsigned value : {0u, 1u, 0x7fu, 0x80u, 0xffu}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(value);
      attempt(bytes);
    }
    for (const std::uint64_t value : {~std::uint64_t{0}, std::uint64_t{good.size()},
                                      std::uint64_t{good.size()} - 8, std::uint64_t{1} << 63}) {
      std::string bytes = good;
      if (at + sizeof(value) > bytes.size()) continue;
      std::memcpy(bytes.data() + at, &value, sizeof(value));
      attempt(bytes);
    }
  }
  std::mt19937_64 random(1);  // fixed: a failure can be repeated
  for (int n = 0; n < 20000; ++n) {
    std::string bytes = good;
    for (auto k = 1 + random() % 4; k > 0; --k) {
      bytes[random() % bytes.size()] = static_cast<char>(random() >> (random() % 8));
    }
    attempt(bytes);
  }
  CHECK(passed > 1000);
  CHECK(refused > 1000);
}
