#include "worker/process/control_line.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/text_fields.h"
#include "worker/process/start_record.h"

namespace gpupool::worker {
namespace {

BadCommand bad(std::string_view reason) {
  return {std::string(reason)};
}

std::optional<std::vector<ShareGrant>> parse_shares(std::string_view text) {
  std::vector<ShareGrant> shares;
  std::set<std::uint32_t> ordinals;
  if (text.empty() || text.ends_with(',')) return std::nullopt;
  while (!text.empty()) {
    std::string_view entry = next_field(text, ',');
    const auto ordinal = parse_number<std::uint32_t>(next_field(entry, ':'));
    const auto milli = parse_number<std::uint32_t>(next_field(entry, ':'));
    const auto mib = parse_number<std::uint64_t>(entry);
    if (!ordinal || *ordinal >= max_devices || !milli || *milli < 1 || *milli > 1000 || !mib || *mib < 1 ||
        *mib > max_mib || !ordinals.insert(*ordinal).second) {
      return std::nullopt;
    }
    shares.push_back({*ordinal, *milli, *mib});
  }
  return shares;
}

std::optional<std::vector<DeviceChange>> parse_devices(std::string_view text) {
  std::vector<DeviceChange> devices;
  std::set<std::uint32_t> ordinals;
  if (text.empty() || text.ends_with(',')) return std::nullopt;
  while (!text.empty()) {
    std::string_view entry = next_field(text, ',');
    const auto ordinal = parse_number<std::uint32_t>(next_field(entry, ':'));
    std::array<std::uint8_t, 16> uuid{};
    if (!ordinal || *ordinal >= max_devices || !parse_hex(entry, uuid) || !ordinals.insert(*ordinal).second) {
      return std::nullopt;
    }
    std::string lower(entry);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c; });
    devices.push_back({*ordinal, std::move(lower)});
  }
  return devices;
}

std::optional<std::uint32_t> parse_epoch(std::string_view text) {
  const auto epoch = parse_number<std::uint32_t>(text);
  return epoch && *epoch > 0 ? epoch : std::nullopt;
}

ControlCommand parse_lease(std::string_view fields) {
  LeaseCommand command;
  while (!fields.empty()) {
    std::string_view field = next_field(fields, ' ');
    const std::string_view key = next_field(field, '=');
    if (key == "epoch") {
      const auto epoch = parse_epoch(field);
      if (!epoch) return bad("lease: bad epoch");
      command.epoch = *epoch;
    } else if (key == "deadline_ns") {
      const auto deadline = parse_number<std::int64_t>(field);
      if (!deadline || *deadline <= 0) return bad("lease: bad deadline_ns");
      command.deadline_ns = *deadline;
    } else if (key == "share") {
      auto shares = parse_shares(field);
      if (!shares) return bad("lease: bad share");
      command.shares = std::move(*shares);
    } else if (key == "device") {
      auto devices = parse_devices(field);
      if (!devices) return bad("lease: bad device");
      command.devices = std::move(*devices);
    }
  }
  if (command.epoch == 0) return bad("lease: no epoch");
  if (command.deadline_ns == 0) return bad("lease: no deadline_ns");
  return command;
}

/// `verb epoch=N`.
template <class Command>
ControlCommand parse_with_epoch(const std::string& verb, std::string_view field) {
  if (next_field(field, '=') != "epoch") return bad(verb + ": no epoch");
  const auto epoch = parse_epoch(field);
  if (!epoch) return bad(verb + ": bad epoch");
  return Command{*epoch};
}

ControlCommand parse_export(std::string_view field) {
  if (next_field(field, '=') != "folder") return bad("export: no folder");
  if (!field.starts_with('/') || field.find('\0') != std::string_view::npos) return bad("export: bad folder");
  return ExportCommand{std::string(field)};
}

std::string_view name_of(Enforcement enforcement) {
  switch (enforcement) {
    case Enforcement::soft:
      return "soft";
    case Enforcement::hard:
      return "hard";
    case Enforcement::mps:
      return "mps";
    case Enforcement::none:
      break;
  }
  return "none";
}

std::string_view name_of(LeaseState state) {
  switch (state) {
    case LeaseState::attached:
      return "attached";
    case LeaseState::fenced:
      return "fenced";
    case LeaseState::parked:
      break;
  }
  return "parked";
}

std::string_view name_of(WorkState state) {
  switch (state) {
    case WorkState::running:
      return "running";
    case WorkState::draining:
      return "draining";
    case WorkState::stopped:
      return "stopped";
    case WorkState::none:
      break;
  }
  return "none";
}

}  // namespace

ControlCommand parse_control_line(std::string_view line) {
  if (line.size() > max_control_line) return bad("line too long");
  const std::string_view verb = next_field(line, ' ');
  if (verb == "lease") return parse_lease(line);
  if (verb == "revoke") return parse_with_epoch<RevokeCommand>("revoke", line);
  if (verb == "park") return parse_with_epoch<ParkCommand>("park", line);
  if (verb == "export") return parse_export(line);
  if (verb == "stats" && line.empty()) return StatsCommand{};
  if (verb == "stop" && line.empty()) return StopCommand{};
  return bad("unknown command");
}

std::string format_stats(const StatsLine& stats) {
  const UsageSnapshot& usage = stats.usage;
  std::string line = "stats epoch=" + std::to_string(stats.lease.epoch);
  line += " state=" + std::string(name_of(stats.lease.state));
  line += std::string(" client=") + (stats.client_connected ? "1" : "0");
  const auto number = [&line](const char* key, auto value) {
    line += std::string(" ") + key + '=' + std::to_string(value);
  };
  number("device_ns", usage.device_ns);
  number("kernels", usage.kernels);
  number("calls", usage.calls);
  number("posts", usage.posts);
  number("asks", usage.asks);
  number("ask_ns", usage.ask_ns);
  number("bytes_in", usage.bytes_in);
  number("bytes_out", usage.bytes_out);
  line += " mem=";
  for (std::size_t ordinal = 0; ordinal < stats.memory.size(); ++ordinal) {
    if (ordinal > 0) line += ',';
    line += std::to_string(ordinal) + ':' + std::to_string(stats.memory[ordinal].used) + ':' +
            std::to_string(stats.memory[ordinal].peak);
  }
  number("last_submit_ns", usage.last_submit_ns);
  number("in_flight", usage.in_flight ? 1 : 0);
  const auto obstacle = [](const std::string& id) { return id.empty() ? std::string("ok") : id; };
  line += std::string(" place=") + (stats.place.in_host ? "host" : "device");
  line += " park=" + obstacle(stats.place.park_obstacle);
  line += " move=" + obstacle(stats.place.move_obstacle);
  line += " enforcement=" + std::string(name_of(stats.enforcement));
  line += " work=" + std::string(name_of(stats.work.state));
  if (!stats.work.kernel.empty()) line += " kernel=" + stats.work.kernel;
  number("work_ms", stats.work.since_ns == 0 ? 0 : (stats.now_ns - stats.work.since_ns) / 1'000'000);
  number("failed", stats.failure.error);
  if (!stats.failure.kernel.empty()) line += " failed_kernel=" + stats.failure.kernel;
  return line;
}

}  // namespace gpupool::worker
