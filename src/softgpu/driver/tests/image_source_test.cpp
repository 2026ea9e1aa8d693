#include "softgpu/driver/program/image_source.h"

#include <doctest/doctest.h>
#include <lz4.h>
#include <zstd.h>

#include <cstring>
#include <random>

#include "image/fatbin.h"
#include "softgpu/driver/base/error.h"

using namespace gpupool::image;
using namespace softgpu::driver;

namespace {

template <class Number>
void append(std::string& to, Number value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// One entry as nvcc writes it: 64-byte header, payload padded to 8 bytes.
std::string entry(std::uint16_t kind, std::uint32_t architecture, const std::string& payload,
                  std::uint64_t flags = 0, std::uint64_t uncompressed = 0) {
  std::string padded = payload;
  padded.resize((payload.size() + 7) / 8 * 8);
  std::string bytes;
  append<std::uint16_t>(bytes, kind);
  append<std::uint16_t>(bytes, 0x101);
  append<std::uint32_t>(bytes, 64);
  append<std::uint64_t>(bytes, padded.size());
  append<std::uint32_t>(bytes, flags ? static_cast<std::uint32_t>(payload.size()) : 0);
  append<std::uint32_t>(bytes, 0);
  append<std::uint32_t>(bytes, 0);
  append<std::uint32_t>(bytes, architecture);
  append<std::uint64_t>(bytes, 0);
  append<std::uint64_t>(bytes, flags);
  append<std::uint64_t>(bytes, 0);
  append<std::uint64_t>(bytes, uncompressed);
  return bytes + padded;
}

std::string fatbin(const std::string& entries) {
  std::string bytes;
  append<std::uint32_t>(bytes, fatbin_magic);
  append<std::uint16_t>(bytes, 1);
  append<std::uint16_t>(bytes, 16);
  append<std::uint64_t>(bytes, entries.size());
  return bytes + entries;
}

std::string lz4(const std::string& text) {
  std::string packed(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(text.size()))), '\0');
  packed.resize(static_cast<std::size_t>(LZ4_compress_default(
      text.data(), packed.data(), static_cast<int>(text.size()), static_cast<int>(packed.size()))));
  return packed;
}

std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

const std::string kernel_text =
    "// a text that is long enough to be worth compressing, worth compressing, worth compressing\n";

}  // namespace

TEST_CASE("damaged bytes are read without leaving their bounds") {
  const std::string good =
      fatbin(entry(1, 75, lz4(kernel_text), 0x2000, kernel_text.size()) + entry(2, 90, "code") +
             entry(1, 80, zstd(kernel_text), 0x8000, kernel_text.size()));
  std::mt19937 random(20240611);  // fixed: a failure can be repeated
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    bytes.shrink_to_fit();  // so that a checker of memory sees the end
    try {
      read_image(bytes.data(), bytes.size(), 120);
    } catch (const Error& error) {
      CHECK_NE(error.code(), CUDA_SUCCESS);
    }
  }
}

TEST_CASE("a damaged file of the linker is refused without leaving its bounds") {
  const std::string good = pack_sources({{".version 1", ".version 2"}, 40});
  std::mt19937 random(20240612);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    bytes.shrink_to_fit();
    try {
      read_image(bytes.data(), bytes.size(), 120);
    } catch (const Error& error) {
      CHECK_NE(error.code(), CUDA_SUCCESS);
      ++refused;
    }
  }
  CHECK(refused > 10000);
}

TEST_CASE("the content of an image decides what it is") {
  const auto code_of = [](const std::string& bytes) {
    try {
      read_image(bytes.data(), bytes.size(), 120);
    } catch (const Error& error) {
      return error.code();
    }
    return CUDA_SUCCESS;
  };
  CHECK_EQ(code_of(".version 8.0\n"), CUDA_SUCCESS);
  CHECK_EQ(code_of("  // comment\n.version 8.0\n"), CUDA_SUCCESS);
  CHECK_EQ(code_of("\x7f"
                   "ELF................"),
           CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK_EQ(code_of(fatbin(entry(2, 120, "machine code"))), CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK_EQ(code_of("garbage"), CUDA_ERROR_INVALID_IMAGE);
  CHECK_EQ(code_of(""), CUDA_ERROR_INVALID_IMAGE);
  std::string wrapper;
  append<std::uint32_t>(wrapper, fatbin_wrapper_magic);
  append<std::uint32_t>(wrapper, 1);
  append<std::uint64_t>(wrapper, 0x1000);  // never followed: it came with the bytes
  append<std::uint64_t>(wrapper, 0);
  CHECK_EQ(code_of(wrapper), CUDA_ERROR_INVALID_IMAGE);
  for (const ImageSource& parts : {ImageSource{{".version 1", ".version 2"}, 0},
                                   ImageSource{{".version 3"}, 40}, ImageSource{{".version 4"}, 0, false}}) {
    const std::string packed = pack_sources(parts);
    CHECK(read_image(packed.data(), packed.size(), 120) == parts);
    // As cuModuleLoadData gets it: the bytes alone say where they end.
    CHECK(read_image(packed.data(), std::nullopt, 120) == parts);
  }
  CHECK_EQ(embedded_ptx("junk" + fatbin(entry(1, 75, ".in")) + "junk", 120), std::vector<std::string>{".in"});
}
