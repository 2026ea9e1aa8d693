// What is left out is what the devices could not use, and the rest is a fat binary again.
#include "image/device_entries.h"

#include <doctest/doctest.h>

#include <random>

#include "image/test_fatbin.h"

using namespace gpupool::image;

namespace {

std::string part(const std::string& bytes, std::vector<unsigned> capabilities) {
  const auto kept = entries_for(view(bytes), capabilities);
  return {reinterpret_cast<const char*>(kept.data()), kept.size()};
}

const std::string all_entries = entry(2, 75, "code75..") + entry(2, 80, "code80..") +
                                entry(2, 86, "code86..") + entry(2, 120, "code120.") +
                                entry(1, 120, ".version");

}  // namespace

TEST_CASE("machine code of other major versions stays behind") {
  CHECK(part(fatbin(all_entries), {86}) ==
        fatbin(entry(2, 80, "code80..") + entry(2, 86, "code86..") + entry(1, 120, ".version")));
  CHECK(part(fatbin(all_entries), {121}) == fatbin(entry(2, 120, "code120.") + entry(1, 120, ".version")));
  CHECK(part(fatbin(all_entries), {75, 120}) ==
        fatbin(entry(2, 75, "code75..") + entry(2, 120, "code120.") + entry(1, 120, ".version")));
}

TEST_CASE("PTX alone is enough for a device without code of its own") {
  CHECK(part(fatbin(all_entries), {90}) == fatbin(entry(1, 120, ".version")));
}

TEST_CASE("the image is sent as it is where nothing can be said or saved") {
  const std::string code = entry(2, 80, "code80..");
  CHECK(part(fatbin(code), {80}).empty());
  CHECK(part(fatbin(code), {90}).empty());  // the driver shall say that it does not fit
  CHECK(part(fatbin(all_entries) + "more", {80}).empty());
  CHECK(part(fatbin(all_entries + "12345678"), {80}).empty());
  CHECK(part(fatbin(all_entries), {}).empty());
  CHECK(part("", {80}).empty());
  CHECK(part("no fat binary at all", {80}).empty());
}

TEST_CASE("damaged fat binaries are read without leaving their bounds") {
  const std::string good = fatbin(all_entries);
  std::mt19937 random(20261121);  // fixed: a failure can be repeated
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (auto changes = 1 + random() % 4; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % 4 == 0 ? random() % (bytes.size() + 1) : bytes.size());
    bytes.shrink_to_fit();  // so that a checker of memory sees the end
    part(bytes, {80});
  }
}
