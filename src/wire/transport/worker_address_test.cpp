#include "wire/transport/worker_address.h"

#include <doctest/doctest.h>

using namespace gpupool::wire;

namespace {

WorkerAddress read(const std::string& text) {
  WorkerAddress out;
  std::string error;
  REQUIRE_MESSAGE(WorkerAddress::parse(text, out, error), error);
  return out;
}
bool refused(const std::string& text) {
  WorkerAddress out;
  std::string error;
  return !WorkerAddress::parse(text, out, error) && !error.empty();
}

}  // namespace

TEST_CASE("a worker's address tells where it is, and in which other ways it can be reached") {
  CHECK(read("10.0.0.6:4711").tcp == "10.0.0.6:4711");
  CHECK(read("10.0.0.6:4711").local.empty());
  CHECK_FALSE(read("10.0.0.6:4711").tls);
  const auto full =
      read("[::1]:4711 local=/run/g/data.sock tls=" + std::string(62, '0') + "fF" + " later=something");
  CHECK(full.tcp == "[::1]:4711");
  CHECK(full.local == "/run/g/data.sock");
  REQUIRE(full.tls);
  CHECK(full.tls->back() == 0xff);
}

TEST_CASE("a fingerprint that cannot be read is an error and no plain connection") {
  CHECK(refused("h:1 tls="));
  CHECK(refused("h:1 tls=00"));
  CHECK(refused("h:1 tls=" + std::string(62, '0') + "-1"));
  CHECK(refused("h:1 tls=" + std::string(66, '0')));
  CHECK(refused("nowhere"));
  CHECK(refused(""));
}
