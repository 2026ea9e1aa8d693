#include "enforcer/pacing.h"

#include <doctest/doctest.h>

#include <deque>

using gpupool::enforcer::Pacing;

namespace {

constexpr std::uint64_t us = 1'000, ms = 1'000'000;

/// A device that runs what it is given, one after the other; nobody looks before a piece is complete.
struct Device {
  Pacing pacing;
  std::uint64_t number = 0, given = 0;
  std::deque<std::pair<std::uint64_t, std::uint64_t>> pieces;  // number, busy

  /// Gives work until there is enough; returns how much lies before the device then.
  std::uint64_t fill(std::uint64_t key, std::uint64_t kernel, bool shared) {
    while (true) {
      if (pacing.full(key)) cut();
      if (pacing.enough(shared)) break;
      pacing.submitted(key);
      given += kernel;
    }
    std::uint64_t all = given;
    for (const auto& piece : pieces) all += piece.second;
    return all;
  }
  void cut() {
    pacing.cut(number);
    pieces.emplace_back(number++, given);
    given = 0;
  }
  void finish_one() {
    const auto [piece, busy] = pieces.front();
    pieces.pop_front();
    CHECK(pacing.completed(piece + 1, busy));
  }
};

}  // namespace

TEST_CASE(
    "what lies before a shared device is a few milliseconds once kernels are known, and at least two "
    "pieces") {
  for (const std::uint64_t kernel : {5 * us, 300 * us, 1 * ms, 3 * ms, 50 * ms}) {
    Device device;
    for (int i = 0; i < 50; ++i) {
      device.fill(1, kernel, true);
      device.finish_one();
    }
    const std::uint64_t before = device.fill(1, kernel, true);
    CAPTURE(kernel);
    CHECK(before >= std::min(Pacing::shared_ns, 2 * kernel));
    CHECK(before <= std::max(8 * ms, 3 * kernel));
  }
}

TEST_CASE("kernels that were never seen are not given by the hundred, whatever came before") {
  Device device;
  for (int i = 0; i < 50; ++i) {
    device.fill(1, 5 * us, true);
    device.finish_one();
  }
  device.cut();
  const std::uint64_t before = device.fill(2, 1000 * ms, true);
  CHECK(before <= 3'100 * ms);
}

TEST_CASE("a lone session may have more before the device") {
  Device device;
  for (int i = 0; i < 50; ++i) {
    device.fill(1, ms, false);
    device.finish_one();
  }
  const std::uint64_t before = device.fill(1, ms, false);
  CHECK(before >= 15 * ms);
  CHECK(before <= 30 * ms);
}

TEST_CASE("calls of different length are told apart") {
  Device device;
  for (int i = 0; i < 20; ++i) {
    for (const auto& [key, kernel] : {std::pair(1UL, 10 * us), std::pair(2UL, 8 * ms)}) {
      if (device.pacing.full(key)) device.cut();
      device.pacing.submitted(key);
      device.given += kernel;
      device.cut();
      device.finish_one();
    }
  }
  device.pacing.submitted(2);
  CHECK(device.pacing.under_way_ns() == doctest::Approx(8e6).epsilon(0.1));
  CHECK(device.pacing.full(1));
}

TEST_CASE("work that takes no measurable time does not stop the counting") {
  Device device;
  for (int i = 0; i < 1000; ++i) {
    if (device.pacing.full(1)) {
      device.cut();
      device.finish_one();
    }
    device.pacing.submitted(1);
  }
  CHECK(device.number >= 1000 / Pacing::most_in_piece);
  CHECK(device.number < 60);
}
