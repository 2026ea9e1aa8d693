#include "shared_api/error_log.h"

#include <doctest/doctest.h>

using gpupool::ErrorLog;

TEST_CASE("an iterator shows what came after it, once") {
  ErrorLog log;
  log.add("one");
  std::uint32_t at = log.next();
  log.add("two");
  log.add("three");
  CHECK(log.text(at, 1000) == "two\nthree\n");
  CHECK(log.text(at, 1000).empty());
  std::uint32_t all = 0;
  CHECK(log.text(all, 1000) == "one\ntwo\nthree\n");
}

TEST_CASE("what does not fit is left out at the front, and the output says so") {
  ErrorLog log;
  for (int n = 0; n < 5; ++n) log.add("line number " + std::to_string(n));
  std::uint32_t all = 0;
  const std::string text = log.text(all, 50);
  CHECK(text.size() <= 50);
  CHECK(text.starts_with("[earlier"));
  CHECK(text.ends_with("line number 4\n"));
}

TEST_CASE("the oldest lines go when there are too many") {
  ErrorLog log;
  for (std::size_t n = 0; n < ErrorLog::most_lines + 3; ++n) log.add(std::to_string(n));
  std::uint32_t all = 0;
  const std::string text = log.text(all, 100'000);
  CHECK(text.starts_with("[earlier messages are left out]\n3\n"));
  CHECK(log.next() == ErrorLog::most_lines + 3);
}

TEST_CASE("callbacks hear of a line until they are removed, and may use the log themselves") {
  struct Heard {
    ErrorLog log;
    int times = 0;
  } heard;
  const auto callback = [](void* data, CUlogLevel, char* message, std::size_t size) {
    auto* const to = static_cast<Heard*>(data);
    CHECK(std::string(message, size) == "told");
    ++to->times;
    static_cast<void>(to->log.next());
  };
  const auto number = heard.log.add_callback(callback, &heard);
  heard.log.add("told");
  CHECK(heard.log.remove_callback(number));
  CHECK_FALSE(heard.log.remove_callback(number));
  heard.log.add("told");
  CHECK(heard.times == 1);
}
