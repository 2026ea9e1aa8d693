#include "shared_api/error_log.h"

#include <doctest/doctest.h>

#include <new>
#include <string>
#include <vector>

using gpupool::CallbacksLater, gpupool::ErrorLog;

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

namespace {

struct Heard {
  ErrorLog log;
  std::vector<std::string> lines;

  Heard() {
    const auto callback = [](void* data, CUlogLevel, char* message, std::size_t size) {
      auto* const to = static_cast<Heard*>(data);
      to->lines.emplace_back(message, size);
      // As a call of the callback's would that fails.
      if (to->lines.size() > 1) return;
      const CallbacksLater later;
      to->log.add("of the callback");
    };
    static_cast<void>(log.add_callback(callback, this));
  }
};

}  // namespace

TEST_CASE("callbacks hear what was added under a CallbacksLater once, at the end of the outermost") {
  Heard heard;
  {
    const CallbacksLater outer;
    heard.log.add("first");
    {
      const CallbacksLater inner;
      heard.log.add("second");
    }
    CHECK(heard.lines.empty());
    std::uint32_t all = 0;
    CHECK(heard.log.text(all, 1000) == "first\nsecond\n");
  }
  CHECK(heard.lines == std::vector<std::string>{"first", "of the callback", "second"});
  {
    const CallbacksLater nothing_more;
  }
  CHECK(heard.lines.size() == 3);
  heard.log.add("at once");
  CHECK(heard.lines.back() == "at once");
}

TEST_CASE("a callback that is removed meanwhile does not hear, and what one throws ends nothing") {
  ErrorLog log;
  int times = 0;
  const auto counts = [](void* data, CUlogLevel, char*, std::size_t) { ++*static_cast<int*>(data); };
  const auto throws = [](void*, CUlogLevel, char*, std::size_t) { throw std::bad_alloc(); };
  static_cast<void>(log.add_callback(throws, nullptr));
  const auto number = log.add_callback(counts, &times);
  {
    const CallbacksLater later;
    log.add("one");
    CHECK(log.remove_callback(number));
  }
  CHECK(times == 0);
}
