// Lines that a driver says are kept until somebody takes them, the newest ones.
#include "worker/driver/driver_log.h"

#include <doctest/doctest.h>

using gpupool::worker::Driver;
using gpupool::worker::DriverLog;

TEST_CASE("lines come once, in order, each with an end of its own") {
  const Driver driver(GPUPOOL_TEST_DRIVER);
  DriverLog log(driver);
  CHECK(log.take().empty());
  log.add("one");
  log.add(std::string_view("two\n\0", 5));
  CHECK(log.take() == "one\ntwo\n");
  CHECK(log.take().empty());
}

TEST_CASE("of too many lines the newest stay") {
  const Driver driver(GPUPOOL_TEST_DRIVER);
  DriverLog log(driver);
  for (std::size_t n = 0; n < DriverLog::most_lines + 5; ++n) log.add(std::to_string(n));
  const std::string text = log.take();
  CHECK(text.starts_with("5\n"));
  CHECK(text.ends_with("\n104\n"));
}
