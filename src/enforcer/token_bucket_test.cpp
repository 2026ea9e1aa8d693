#include "enforcer/token_bucket.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using gpupool::enforcer::TokenBucket;

namespace {
constexpr std::int64_t ms = 1'000'000;
}

TEST_CASE("a session under a hard cap gets its share of the time, whatever the size of its kernels") {
  for (const std::uint32_t milli : {10U, 100U, 250U, 500U, 900U, 1000U}) {
    for (const std::int64_t longest : {ms / 10, 2 * ms, 40 * ms}) {
      std::mt19937_64 random(milli);
      std::int64_t now = 77;
      TokenBucket bucket(milli, now);
      std::int64_t used = 0;
      const std::int64_t end = 400'000 * ms;
      while (now < end) {
        now += bucket.wait_ns(now);
        while (now < end && !bucket.empty(now)) {
          const auto kernel = std::uniform_int_distribution<std::int64_t>(ms / 20, longest)(random);
          now += kernel;
          used += kernel;
          bucket.spend(kernel);
        }
      }
      CAPTURE(milli);
      CAPTURE(longest);
      const double part = static_cast<double>(used) / static_cast<double>(now) / (milli / 1000.0);
      CHECK(part <= 1.03);
      CHECK(part >= 0.97);
    }
  }
}

TEST_CASE("what is saved up is a tenth of a second of the share, however long the session was idle") {
  TokenBucket bucket(250, 0);
  std::int64_t now = 3'600'000 * ms;
  std::int64_t used = 0;
  while (!bucket.empty(now)) {
    bucket.spend(ms);
    used += ms;
  }
  CHECK(used == 25 * ms);
  CHECK(bucket.wait_ns(now) > 0);
}

TEST_CASE("one long kernel is waited for in full") {
  TokenBucket bucket(500, 0);
  bucket.spend(1050 * ms);  // 50 were there
  const std::int64_t wait = bucket.wait_ns(0);
  CHECK(wait >= 2000 * ms);
  CHECK(wait <= 2010 * ms);
  CHECK(bucket.wait_ns(wait + 1) == 0);
}

TEST_CASE("a new cap counts from now on, and takes nothing that was paid for") {
  TokenBucket bucket(1000, 0);
  bucket.resize(100, 0);
  std::int64_t used = 0;
  while (!bucket.empty(0)) {
    bucket.spend(ms);
    used += ms;
  }
  CHECK(used == 10 * ms);
}

TEST_CASE("a clock that does not move, or moves back, fills nothing") {
  TokenBucket bucket(500, 100 * ms);
  bucket.spend(60 * ms);
  CHECK(bucket.empty(100 * ms));
  CHECK(bucket.empty(5));
}
