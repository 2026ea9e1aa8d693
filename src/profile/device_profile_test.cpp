#include "profile/device_profile.h"

#include <doctest/doctest.h>

#include <stdexcept>

using namespace gpupool;

namespace {

DeviceProfile sample() {
  DeviceProfile profile{13000, {}};
  profile.devices.push_back({0,
                             "Software GPU (gpupool)",
                             std::string(32, 'a'),
                             true,
                             8192,
                             "0000:00:00.0",
                             {{75, 12}, {76, 0}, {19, -1}}});
  profile.devices.push_back(
      {1, "NVIDIA H200", std::string(32, 'b'), false, 143771, "0000:1b:00.0", {{75, 9}}});
  profile.devices.back().stream_priorities = {0, -5};
  return profile;
}

std::string error_of(const std::string& text) {
  try {
    (void)parse_profile(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("what is written is read back") {
  const DeviceProfile read = parse_profile(format_profile(sample()));
  REQUIRE(read.devices.size() == 2);
  CHECK(read.driver_version == 13000);
  CHECK(read.devices[0].name == "Software GPU (gpupool)");
  CHECK_FALSE(read.devices[0].stream_priorities.has_value());
  CHECK(read.devices[1].stream_priorities == std::pair(0, -5));
  CHECK(read.devices[0].software);
  CHECK(read.devices[0].attributes == sample().devices[0].attributes);
  CHECK(read.devices[1].uuid == std::string(32, 'b'));
  CHECK(read.devices[1].total_mib == 143771);
  CHECK(read.devices[1].pci == "0000:1b:00.0");
  CHECK_FALSE(read.devices[1].software);
}

TEST_CASE("the text is the contract's") {
  DeviceProfile profile = sample();
  profile.devices.pop_back();
  profile.devices[0].attributes = {{75, 12}};
  CHECK(format_profile(profile) ==
        "driver_version 13000\ndevice 0\nname Software GPU (gpupool)\nuuid " + std::string(32, 'a') +
            "\nsoftware 1\ntotal_mib 8192\npci 0000:00:00.0\nattribute 75 12\nend\n");
}

TEST_CASE("a name cannot smuggle in another line") {
  DeviceProfile profile = sample();
  profile.devices[0].name = "evil\nsoftware 0";
  CHECK(parse_profile(format_profile(profile)).devices[0].name == "evil software 0");
}

TEST_CASE("unknown keys are skipped, empty text has no devices") {
  CHECK(parse_profile("").devices.empty());
  CHECK(parse_profile("colour blue\ndevice 0\nshape round\nend\n").devices.size() == 1);
}

TEST_CASE("malformed text is refused by line") {
  CHECK(error_of("end\n") == "device profile, line 1: `end` outside a device");
  CHECK(error_of("device 0\ndevice 1\n") ==
        "device profile, line 2: `device` before the `end` of the one before");
  CHECK(error_of("device 0\n") == "device profile: the last device has no `end`");
  CHECK(error_of("device -1\n") == "device profile, line 1: not an ordinal");
  CHECK(error_of("driver_version x\n") == "device profile, line 1: not a driver version");
  for (const char* line : {"uuid 12", "uuid zz", "software 2", "total_mib -1", "attribute 75",
                           "attribute x 1", "attribute 0 1", "attribute 75 99999999999"}) {
    CHECK(error_of("device 0\n" + std::string(line) + "\nend\n")
              .starts_with("device profile, line 2: bad value for `"));
  }
  CHECK(error_of(std::string((1U << 20) + 1, 'x')) == "device profile: more than 1 MiB of text");
}
