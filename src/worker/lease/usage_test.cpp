#include "worker/lease/usage.h"

#include <doctest/doctest.h>

using namespace gpupool::worker;

TEST_CASE("a snapshot counts posts and asks as calls") {
  Usage usage;
  usage.post();
  usage.post();
  usage.ask(1500);
  usage.ask(500);
  usage.received(64);
  usage.sent(32);
  usage.submitted(42, 1);
  usage.submitted(43, 0);
  const UsageSnapshot now = usage.snapshot();
  CHECK(now.posts == 2);
  CHECK(now.asks == 2);
  CHECK(now.calls == 4);
  CHECK(now.ask_ns == 2000);
  CHECK(now.bytes_in == 64);
  CHECK(now.bytes_out == 32);
  CHECK(now.kernels == 1);
  CHECK(now.last_submit_ns == 43);
}

TEST_CASE("a snapshot is a copy: equal until something is used") {
  Usage usage;
  const UsageSnapshot before = usage.snapshot();
  CHECK(usage.snapshot() == before);
  usage.device_ns += 1;
  CHECK_FALSE(usage.snapshot() == before);
}
