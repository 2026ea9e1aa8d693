#include "worker/process/start_record.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <stdexcept>

#include "base/text_fields.h"

namespace gpupool::worker {
namespace {

constexpr std::int64_t most_drain_ms = 600'000;

[[noreturn]] void bad(std::string_view key) {
  throw std::runtime_error("start record: bad value for `" + std::string(key) + "`");
}

DeviceShare parse_device(std::string_view value) {
  const auto ordinal = parse_number<int>(next_field(value, ' '));
  const std::string_view uuid = next_field(value, ' ');
  const auto milli = parse_number<std::uint32_t>(next_field(value, ' '));
  const auto mib = parse_number<std::uint64_t>(value);
  std::array<std::uint8_t, 16> uuid_bytes{};
  if (!ordinal || *ordinal < 0 || !parse_hex(uuid, uuid_bytes) || !milli || *milli < 1 || *milli > 1000 ||
      !mib || *mib < 1 || *mib > max_mib) {
    bad("device");
  }
  DeviceShare share{*ordinal, std::string(uuid), *milli, *mib};
  std::transform(share.uuid.begin(), share.uuid.end(), share.uuid.begin(),
                 [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c; });
  return share;
}

/// What concerns one of the record's devices, wherever in it the device stands.
struct PerDevice {
  std::map<int, std::string> enforcers;
  std::set<int> strict;
};

void set_enforcer(PerDevice& later, std::string_view value) {
  const auto ordinal = parse_number<int>(next_field(value, ' '));
  if (!ordinal || *ordinal < 0 || !value.starts_with('/')) bad("enforcer");
  if (!later.enforcers.emplace(*ordinal, value).second) bad("enforcer");
}

void set_strict(PerDevice& later, std::string_view value) {
  const auto ordinal = parse_number<int>(value);
  if (!ordinal || *ordinal < 0) bad("strict");
  later.strict.insert(*ordinal);
}

void set_field(StartRecord& record, std::string_view key, std::string_view value) {
  if (key == "session") {
    if (!parse_hex(value, record.session)) bad(key);
  } else if (key == "token") {
    if (!parse_hex(value, record.token)) bad(key);
  } else if (key == "move_key") {
    if (!parse_hex(value, record.move_key.emplace())) bad(key);
  } else if (key == "epoch") {
    const auto epoch = parse_number<std::uint32_t>(value);
    if (!epoch || *epoch == 0) bad(key);
    record.epoch = *epoch;
  } else if (key == "deadline_ns") {
    const auto deadline = parse_number<std::int64_t>(value);
    if (!deadline || *deadline <= 0) bad(key);
    record.deadline_ns = *deadline;
  } else if (key == "drain_ms") {
    const auto drain = parse_number<std::int64_t>(value);
    if (!drain || *drain <= 0 || *drain > most_drain_ms) bad(key);
    record.drain_ms = *drain;
  } else if (key == "device") {
    if (record.devices.size() == max_devices) bad(key);
    record.devices.push_back(parse_device(value));
  } else if (key == "user") {
    if (!parse_hex(value, record.user.emplace())) bad(key);
  } else if (key == "image_cache") {
    if (!value.starts_with('/')) bad(key);
    record.image_cache = value;
  } else if (key == "image_cache_mib") {
    const auto mib = parse_number<std::uint64_t>(value);
    if (!mib || *mib > max_mib) bad(key);
    record.image_cache_mib = *mib;
  } else if (key == "context_reserve_mib") {
    const auto mib = parse_number<std::uint64_t>(value);
    if (!mib || *mib > max_mib) bad(key);
    record.context_reserve_mib = *mib;
  } else if (key == "mps") {
    if (value != "beside" && value != "partition") bad(key);
    record.mps = value == "beside" ? Mps::beside : Mps::partition;
  } else if (key == "image") {
    if (!value.starts_with('/')) bad(key);
    record.image = value;
  } else if (key == "image_from") {
    if (value.empty()) bad(key);
    record.image_from = value;
  }
  // Unknown keys are skipped: a newer agent may say more.
}

}  // namespace

StartRecord parse_start_record(std::string_view text) {
  if (text.size() > max_start_record) throw std::runtime_error("start record: longer than 64 KiB");
  if (text.find('\0') != std::string_view::npos) throw std::runtime_error("start record: not text");
  StartRecord record;
  PerDevice per_device;
  std::set<std::string, std::less<>> seen;
  while (!text.empty()) {
    const std::string_view line = next_field(text, '\n');
    if (line.empty()) break;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) throw std::runtime_error("start record: a line without a value");
    const std::string_view key = line.substr(0, space);
    if (key == "enforcer") {
      set_enforcer(per_device, line.substr(space + 1));
      continue;
    }
    if (key == "strict") {
      set_strict(per_device, line.substr(space + 1));
      continue;
    }
    if (key != "device" && !seen.emplace(key).second) {
      throw std::runtime_error("start record: `" + std::string(key) + "` is given twice");
    }
    set_field(record, key, line.substr(space + 1));
  }
  for (const char* key : {"session", "token", "epoch", "deadline_ns"}) {
    if (!seen.contains(key)) throw std::runtime_error(std::string("start record: `") + key + "` is missing");
  }
  if (!record.image.empty() && !record.image_from.empty()) {
    throw std::runtime_error("start record: both `image` and `image_from`");
  }
  if (!record.image_from.empty() && !record.move_key) {
    throw std::runtime_error("start record: `image_from` without `move_key`");
  }
  for (DeviceShare& device : record.devices) {
    if (const auto found = per_device.enforcers.find(device.driver_ordinal);
        found != per_device.enforcers.end())
      device.enforcer = found->second;
    device.strict = per_device.strict.contains(device.driver_ordinal);
  }
  if (record.devices.empty()) throw std::runtime_error("start record: no `device`");
  return record;
}

void await_start_record(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  while (::poll(&waiting, 1, -1) < 0 && errno == EINTR) {
  }
}

std::string read_start_record(int fd, int timeout_ms) {
  const std::int64_t deadline = boottime_ns() + static_cast<std::int64_t>(timeout_ms) * 1'000'000;
  std::string text;
  for (;;) {
    const std::int64_t left_ms = (deadline - boottime_ns()) / 1'000'000;
    pollfd waiting{fd, POLLIN, 0};
    if (left_ms <= 0 || ::poll(&waiting, 1, static_cast<int>(left_ms)) == 0) {
      throw std::runtime_error("start record: not complete in time");
    }
    std::array<char, 4096> chunk{};
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) throw std::runtime_error("start record: stdin cannot be read");
    if (got == 0) return text;
    text.append(chunk.data(), static_cast<std::size_t>(got));
    if (text.starts_with('\n')) return {};
    if (const std::size_t end = text.find("\n\n"); end != std::string::npos) return text.substr(0, end + 1);
    if (text.size() > max_start_record) throw std::runtime_error("start record: longer than 64 KiB");
  }
}

}  // namespace gpupool::worker
