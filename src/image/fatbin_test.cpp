#include "image/fatbin.h"

#include <doctest/doctest.h>
#include <lz4.h>
#include <zstd.h>

#include <cstring>
#include <random>

#include "image/test_fatbin.h"

using namespace gpupool::image;

namespace {

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

const std::string sample_text =
    "// a text that is long enough to be worth compressing, worth compressing, worth compressing\n";

}  // namespace

TEST_CASE("the highest PTX the device takes is chosen, machine code never") {
  const std::string bytes = fatbin(entry(2, 120, "machine code") + entry(1, 75, ".old") +
                                   entry(1, 90, ".new") + entry(1, 130, ".future"));
  CHECK_EQ(fatbin_entries(view(bytes)).size(), 4);
  CHECK_EQ(best_ptx(view(bytes), 120).value(), ".new");
  CHECK_EQ(best_ptx(view(bytes), 80).value(), ".old");
  CHECK_FALSE(best_ptx(view(bytes), 70).has_value());
  CHECK_FALSE(best_ptx(view(fatbin(entry(2, 120, "machine code"))), 120).has_value());
}

TEST_CASE("machine code is chosen for the device's own major version") {
  const std::string bytes =
      fatbin(entry(2, 80, "code80..") + entry(2, 86, zstd("code86.."), 0x8000, 8) + entry(2, 90, "code90.."));
  CHECK_EQ(best_machine_code(view(bytes), 80).value(), "code80..");
  CHECK_EQ(best_machine_code(view(bytes), 89).value(), "code86..");
  CHECK_EQ(best_machine_code(view(bytes), 90).value(), "code90..");
  CHECK_FALSE(best_machine_code(view(bytes), 75).has_value());
  CHECK_FALSE(best_machine_code(view(bytes), 120).has_value());
}

TEST_CASE("compressed PTX is read in both compressions") {
  CHECK_EQ(best_ptx(view(fatbin(entry(1, 75, lz4(sample_text), 0x2000, sample_text.size()))), 120).value(),
           sample_text);
  CHECK_EQ(best_ptx(view(fatbin(entry(1, 75, zstd(sample_text), 0x8000, sample_text.size()))), 120).value(),
           sample_text);
}

TEST_CASE("a wrong uncompressed size is damage, not a guess") {
  CHECK_FALSE(best_ptx(view(fatbin(entry(1, 75, lz4(sample_text), 0x2000, sample_text.size() + 1))), 120)
                  .has_value());
  CHECK_FALSE(best_ptx(view(fatbin(entry(1, 75, zstd(sample_text), 0x8000, sample_text.size() - 1))), 120)
                  .has_value());
  CHECK_FALSE(best_ptx(view(fatbin(entry(1, 75, zstd(sample_text), 0x8000, std::uint64_t{1} << 60))), 120)
                  .has_value());
}

TEST_CASE("damaged bytes are read without leaving their bounds") {
  const std::string good =
      fatbin(entry(1, 75, lz4(sample_text), 0x2000, sample_text.size()) + entry(2, 90, "code") +
             entry(1, 80, zstd(sample_text), 0x8000, sample_text.size()));
  std::mt19937 random(20240611);  // fixed: a failure can be repeated
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    bytes.resize(random() % (bytes.size() + 1));
    bytes.shrink_to_fit();  // so that a checker of memory sees the end
    best_ptx(view(bytes), 120);
    best_machine_code(view(bytes), 90);
  }
}
