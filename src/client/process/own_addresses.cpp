#include "client/process/own_addresses.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace gpupool::client {
namespace {

/// "7f0000000000-7f0000001000 r-xp ..."
bool parse_range(std::string_view line, std::uint64_t& begin, std::uint64_t& end) {
  const char* const last = line.data() + line.size();
  const auto first = std::from_chars(line.data(), last, begin, 16);
  if (first.ec != std::errc{} || first.ptr == last || *first.ptr != '-') return false;
  return std::from_chars(first.ptr + 1, last, end, 16).ec == std::errc{};
}

}  // namespace

bool is_free(std::string_view maps, std::uint64_t begin, std::uint64_t end) {
  bool any = false;
  while (!maps.empty()) {
    const std::string_view line = maps.substr(0, maps.find('\n'));
    maps.remove_prefix(std::min(maps.size(), line.size() + 1));
    std::uint64_t from = 0, to = 0;
    if (!parse_range(line, from, to)) return false;
    if (from < end && begin < to) return false;
    any = true;
  }
  return any;
}

std::uint64_t first_free(std::span<const std::uint64_t> begins, std::uint64_t size) {
  std::ifstream file("/proc/self/maps");
  const std::string maps((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto found = std::find_if(begins.begin(), begins.end(),
                                  [&](std::uint64_t begin) { return is_free(maps, begin, begin + size); });
  return found != begins.end() ? *found : begins.front();
}

}  // namespace gpupool::client
