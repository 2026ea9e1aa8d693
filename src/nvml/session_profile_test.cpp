#include "nvml/session_profile.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "nvml/client_runtime.h"

using namespace gpupool::nvml;

TEST_CASE("the session file gives the profile's path and the shares; the rest is skipped") {
  const SessionFacts facts = parse_session(
      "version 1\nstate attached\ntoken secret\nprofile /a b/profile\nshare 0:200:1638,1:500:4096\nsoftware "
      "1\n");
  CHECK(facts.profile_path == "/a b/profile");
  CHECK(facts.share_mib == std::map<unsigned, std::uint64_t>{{0, 1638}, {1, 4096}});
}

TEST_CASE("unreadable shares are skipped, not guessed") {
  for (const char* line : {"share", "share ", "share x", "share 0:200", "share 0:200:", "share 0:200:-1",
                           "share :::,,,", "share 0:200:99999999999999999999", "share 0:200:1638:1"}) {
    CHECK(parse_session(line).share_mib.empty());
  }
}

TEST_CASE("outside a session there is nothing; without a profile there are no devices") {
  ::unsetenv("GPUPOOL_SESSION_FILE");
  CHECK_FALSE(read_session_profile().has_value());
  ::setenv("GPUPOOL_SESSION_FILE", "/nonexistent/session", 1);
  REQUIRE(read_session_profile().has_value());
  CHECK(read_session_profile()->devices.empty());
}

TEST_CASE("the share cuts the device's memory, and a profile that cannot be read shows no device") {
  const auto folder = std::filesystem::temp_directory_path() / ("gpupool-nvml-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string session = folder / "session";
  const std::string profile = folder / "profile";
  ::setenv("GPUPOOL_SESSION_FILE", session.c_str(), 1);
  std::ofstream(session) << "profile " << profile << "\nshare 0:200:1638\n";
  std::ofstream(profile)
      << "driver_version 13000\ndevice 0\ntotal_mib 8192\nend\ndevice 1\ntotal_mib 4096\nend\n";
  const auto read = read_session_profile();
  REQUIRE(read->devices.size() == 2);
  CHECK(read->devices[0].total_mib == 1638);
  CHECK(read->devices[1].total_mib == 4096);
  std::ofstream(profile) << "device 0\ntotal_mib banana\nend\n";
  CHECK(read_session_profile()->devices.empty());
  std::filesystem::remove_all(folder);
}

TEST_CASE("the counters' worker figures are read; without a worker there are none") {
  const auto figures = parse_counters(
      R"({"calls":3,"asks_by_name":{},"worker":{"device_seconds":1.25,"kernels":7,"memory_used":[1024, 2048],"memory_peak":[9,9]},"state":"attached"})");
  REQUIRE(figures.has_value());
  CHECK(figures->device_seconds == doctest::Approx(1.25));
  CHECK(figures->memory_used == std::vector<std::uint64_t>{1024, 2048});
  CHECK_FALSE(parse_counters(R"({"calls":3,"worker":null,"state":"none"})").has_value());
  CHECK_FALSE(parse_counters("").has_value());
}

TEST_CASE("truncated counters never read past the end") {
  const std::string whole = R"({"worker":{"device_seconds":1.25,"memory_used":[1024,2048]}})";
  for (std::size_t length = 0; length <= whole.size(); ++length)
    (void)parse_counters(whole.substr(0, length));
}
