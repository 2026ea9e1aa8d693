// Whatever a worker sends, decoding it neither crashes nor reads past the end (meant to run under the
// sanitizers too).
#include <doctest/doctest.h>

#include <exception>
#include <random>
#include <vector>

#include "client/lease/session_file.h"
#include "profile/device_profile.h"
#include "protocol/kernel_info.h"
#include "wire/bytes.h"

using namespace gpupool;

namespace {

/// Flips, cuts and inserts a few bytes.
std::vector<std::byte> mutate(std::vector<std::byte> bytes, std::mt19937_64& random) {
  for (std::uint64_t n = random() % 6; n > 0 && !bytes.empty(); --n) {
    const auto at = static_cast<std::ptrdiff_t>(random() % bytes.size());
    switch (random() % 4) {
      case 0:
        bytes[static_cast<std::size_t>(at)] = static_cast<std::byte>(random());
        break;
      case 1:
        bytes[static_cast<std::size_t>(at)] = std::byte{0xff};
        break;
      case 2:
        bytes.erase(bytes.begin() + at, bytes.end());
        break;
      default:
        bytes.insert(bytes.begin() + at, static_cast<std::byte>(random()));
        break;
    }
  }
  bytes.shrink_to_fit();  // so that a read past the end is outside the allocation
  return bytes;
}

template <class T>
std::vector<std::byte> encoded(const T& value) {
  wire::Buffer buffer;
  wire::Writer out(buffer);
  value.encode(out);
  return {buffer.bytes().begin(), buffer.bytes().end()};
}

template <class T>
int survive(const std::vector<std::byte>& seed, std::uint64_t rounds) {
  std::mt19937_64 random(11);
  int accepted = 0;
  for (std::uint64_t n = 0; n < rounds; ++n) {
    const auto bytes = mutate(seed, random);
    wire::Reader in(bytes);
    T value;
    accepted += T::decode(in, value) ? 1 : 0;
  }
  return accepted;
}

std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::vector<std::byte> as_bytes(const std::string& text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

}  // namespace

TEST_CASE("mutated kernel descriptions are refused or decoded, never more") {
  KernelInfo kernel;
  kernel.name = "saxpy";
  kernel.described = true;
  kernel.parameters = {{0, 8}, {8, 4}, {16, 8}};
  CHECK(survive<KernelInfo>(encoded(kernel), 20000) > 0);
}

TEST_CASE("a kernel layout outside CUDA's parameter space is refused") {
  KernelInfo kernel;
  kernel.described = true;
  kernel.parameters = {{0, 8}, {KernelInfo::max_parameter_bytes + 1, 4}};
  const auto bytes = encoded(kernel);
  wire::Reader in(bytes);
  KernelInfo back;
  CHECK_FALSE(KernelInfo::decode(in, back));
}

TEST_CASE("mutated session files and device profiles are refused or read, never more") {
  std::mt19937_64 random(13);
  const auto file =
      as_bytes("version 1\nstate attached\nsession 000102030405060708090a0b0c0d0e0f\nepoch 7\naddress h:1\n");
  const auto profile = as_bytes("driver_version 13000\ndevice 0\nname X\nuuid 00\nattribute 75 12\nend\n");
  for (int n = 0; n < 20000; ++n) {
    std::string error;
    static_cast<void>(client::parse_session_file(as_text(mutate(file, random)), error));
    try {
      static_cast<void>(parse_profile(as_text(mutate(profile, random))));
    } catch (const std::exception&) {
      continue;  // a refusal
    }
  }
  CHECK(true);
}
