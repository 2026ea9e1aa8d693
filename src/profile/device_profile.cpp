#include "profile/device_profile.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace gpupool {
namespace {

constexpr std::size_t max_text = 1U << 20;
constexpr std::size_t max_devices = 64;
constexpr std::size_t max_name = 255;

template <typename Integer>
bool parse_integer(std::string_view text, Integer& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

std::string one_line(std::string_view text) {
  std::string line(text.substr(0, max_name));
  std::replace_if(line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return line;
}

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

[[noreturn]] void bad(std::size_t line_number, std::string_view what) {
  throw std::runtime_error("device profile, line " + std::to_string(line_number) + ": " + std::string(what));
}

bool parse_attribute(std::string_view value, std::map<int, int>& attributes) {
  const std::size_t space = value.find(' ');
  int id = 0;
  int number = 0;
  if (space == std::string_view::npos || !parse_integer(value.substr(0, space), id) || id < 1 || id > 4096 ||
      !parse_integer(value.substr(space + 1), number)) {
    return false;
  }
  attributes[id] = number;
  return true;
}

bool parse_pair(std::string_view value, std::optional<std::pair<int, int>>& out) {
  const std::size_t space = value.find(' ');
  std::pair<int, int> both;
  if (space == std::string_view::npos || !parse_integer(value.substr(0, space), both.first) ||
      !parse_integer(value.substr(space + 1), both.second)) {
    return false;
  }
  out = both;
  return true;
}

/// False when `value` is not one for `key`; unknown keys are fine.
bool set_field(DeviceDescription& device, std::string_view key, std::string_view value) {
  if (key == "name") {
    device.name = one_line(value);
  } else if (key == "uuid") {
    if (value.size() != 32 || !is_hex(value)) return false;
    device.uuid = value;
  } else if (key == "software") {
    if (value != "0" && value != "1") return false;
    device.software = value == "1";
  } else if (key == "total_mib") {
    return parse_integer(value, device.total_mib) && device.total_mib <= (1ULL << 40);
  } else if (key == "pci") {
    if (value.size() > 31) return false;
    device.pci = one_line(value);
  } else if (key == "stream_priorities") {
    return parse_pair(value, device.stream_priorities);
  } else if (key == "attribute") {
    return parse_attribute(value, device.attributes);
  }
  return true;
}

}  // namespace

std::string format_profile(const DeviceProfile& profile) {
  std::string text = "driver_version " + std::to_string(profile.driver_version) + '\n';
  for (const DeviceDescription& device : profile.devices) {
    text += "device " + std::to_string(device.ordinal) + '\n';
    text += "name " + one_line(device.name) + '\n';
    text += "uuid " + device.uuid + '\n';
    text += std::string("software ") + (device.software ? "1" : "0") + '\n';
    text += "total_mib " + std::to_string(device.total_mib) + '\n';
    text += "pci " + device.pci + '\n';
    if (const auto& range = device.stream_priorities) {
      text +=
          "stream_priorities " + std::to_string(range->first) + ' ' + std::to_string(range->second) + '\n';
    }
    for (const auto& [id, value] : device.attributes) {
      text += "attribute " + std::to_string(id) + ' ' + std::to_string(value) + '\n';
    }
    text += "end\n";
  }
  return text;
}

DeviceProfile parse_profile(std::string_view text) {
  if (text.size() > max_text) throw std::runtime_error("device profile: more than 1 MiB of text");
  DeviceProfile profile;
  bool in_device = false;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (line.empty()) continue;
    const std::size_t space = line.find(' ');
    const std::string_view key = line.substr(0, space);
    const std::string_view value =
        space == std::string_view::npos ? std::string_view{} : line.substr(space + 1);
    if (key == "end") {
      if (!in_device) bad(number, "`end` outside a device");
      in_device = false;
    } else if (key == "device") {
      DeviceDescription device;
      if (in_device) bad(number, "`device` before the `end` of the one before");
      if (profile.devices.size() == max_devices) bad(number, "more than 64 devices");
      if (!parse_integer(value, device.ordinal) || device.ordinal < 0) bad(number, "not an ordinal");
      profile.devices.push_back(std::move(device));
      in_device = true;
    } else if (in_device) {
      if (!set_field(profile.devices.back(), key, value))
        bad(number, "bad value for `" + one_line(key) + "`");
    } else if (key == "driver_version") {
      if (!parse_integer(value, profile.driver_version)) bad(number, "not a driver version");
    }
  }
  if (in_device) throw std::runtime_error("device profile: the last device has no `end`");
  return profile;
}

}  // namespace gpupool
