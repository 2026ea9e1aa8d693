#include "nvml/session_usage.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/process_mark.h"

using namespace gpupool;
using namespace gpupool::nvml;

namespace {

struct Session {
  Session() {
    folder = std::filesystem::temp_directory_path() / ("gpupool-usage-" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    ::setenv("GPUPOOL_SESSION_FILE", (folder / "session").c_str(), 1);
  }
  ~Session() {
    ::unsetenv("GPUPOOL_SESSION_FILE");
    std::filesystem::remove_all(folder);
  }
  void usage(std::int64_t age_seconds) const {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    std::ofstream(folder / "session.usage")
        << "version 1\ntime_ns " << (now.tv_sec - age_seconds) * 1'000'000'000
        << "\nbusy_permille 250\nmemory_used 1024,2048\n";
  }
  std::filesystem::path folder;
};

}  // namespace

TEST_CASE("a report is read; one that is old, or of another boot, is not") {
  const Session session;
  CHECK_FALSE(read_session_usage().has_value());
  session.usage(1);
  const auto usage = read_session_usage();
  REQUIRE(usage.has_value());
  CHECK(usage->busy == doctest::Approx(0.25));
  CHECK(usage->memory_used == std::vector<std::uint64_t>{1024, 2048});
  session.usage(31);
  CHECK_FALSE(read_session_usage().has_value());
  session.usage(-1000);
  CHECK_FALSE(read_session_usage().has_value());
}

TEST_CASE("what is no report is refused, not guessed") {
  for (const char* text :
       {"", "time_ns 1", "busy_permille 1", "time_ns -1\nbusy_permille 1", "time_ns 1\nbusy_permille 1001",
        "time_ns 1\nbusy_permille 1\nmemory_used x", "time_ns 1\nbusy_permille 1\nmemory_used 1,,2"}) {
    CHECK_FALSE(parse_usage(text).has_value());
  }
  CHECK(parse_usage("time_ns 1\nbusy_permille 0\ncolour blue\n").has_value());
}

TEST_CASE("the process of a session is found while it lives, and no later one of its number") {
  const Session session;
  CHECK_FALSE(session_process().has_value());
  process_mark::mark_process();
  CHECK(session_process() == static_cast<unsigned>(::getpid()));
  const auto mark = session.folder / "session.process";
  CHECK((std::filesystem::status(mark).permissions() & std::filesystem::perms::group_all) ==
        std::filesystem::perms::none);
  std::ofstream(mark) << ::getpid() << " 1\n";
  CHECK_FALSE(session_process().has_value());
  const pid_t child = ::fork();
  if (child == 0) {
    process_mark::mark_process();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  CHECK(std::filesystem::exists(mark));
  CHECK_FALSE(session_process().has_value());
  for (const char* text : {"", "x", "1", "1 x", "0 1", "-1 1", "1 1 1"})
    CHECK_FALSE(parse_process(text).has_value());
}
