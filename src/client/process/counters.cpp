#include "client/process/counters.h"

#include <cstdio>
#include <map>
#include <string_view>
#include <utility>

#include "base/decimal.h"

namespace gpupool::client {
namespace {

std::string list(const std::vector<wire::MemoryUse>& devices, std::uint64_t wire::MemoryUse::* bytes) {
  std::string text = "[";
  for (const auto& device : devices) text += (text.size() > 1 ? "," : "") + std::to_string(device.*bytes);
  return text + "]";
}

}  // namespace

void Counters::ask(std::uint16_t message, std::uint64_t nanoseconds) noexcept {
  asks_.fetch_add(1, std::memory_order_relaxed);
  ask_ns_.fetch_add(nanoseconds, std::memory_order_relaxed);
  if (message < 64 || message - 64 >= message_count) return;
  PerMessage& mine = by_message_[message - 64u];
  mine.count.fetch_add(1, std::memory_order_relaxed);
  mine.nanoseconds.fetch_add(nanoseconds, std::memory_order_relaxed);
}

void Counters::waited_for_copy(std::uint64_t bytes) noexcept {
  std::size_t n = 0;
  while (n < copy_classes.size() && bytes > copy_classes[n]) ++n;
  copies_to_host_[n].fetch_add(1, std::memory_order_relaxed);
}

std::string Counters::json() const {
  const auto posts = posts_.load(), asks = asks_.load();
  char text[512];
  std::snprintf(text, sizeof(text),
                "\"calls\":%llu,\"posts\":%llu,\"asks\":%llu,\"ask_seconds\":%s,\"bytes_to_device\":%llu,"
                "\"bytes_from_device\":%llu,\"images_sent\":[%llu,%llu],\"images_found\":[%llu,%llu],"
                "\"asks_by_name\":{",
                static_cast<unsigned long long>(posts + asks), static_cast<unsigned long long>(posts),
                static_cast<unsigned long long>(asks),
                decimal(static_cast<double>(ask_ns_.load()) * 1e-9, 9).c_str(),
                static_cast<unsigned long long>(to_device_.load()),
                static_cast<unsigned long long>(from_device_.load()),
                static_cast<unsigned long long>(images_sent_.load()),
                static_cast<unsigned long long>(image_bytes_sent_.load()),
                static_cast<unsigned long long>(images_found_.load()),
                static_cast<unsigned long long>(image_bytes_found_.load()));
  std::string out = text;
  // Several messages may be shown as one export.
  std::map<std::string_view, std::pair<std::uint64_t, std::uint64_t>> by_name;
  for (std::uint16_t n = 0; n < message_count; ++n) {
    const auto count = by_message_[n].count.load();
    if (count == 0) continue;
    auto& [all, nanoseconds] = by_name[shown_name(static_cast<std::uint16_t>(n + 64))];
    all += count;
    nanoseconds += by_message_[n].nanoseconds.load();
  }
  bool first = true;
  for (const auto& [name, figures] : by_name) {
    out.append(first ? "\"" : ",\"").append(name).append("\":[").append(std::to_string(figures.first));
    out.append(",").append(decimal(static_cast<double>(figures.second) * 1e-9, 9)).append("]");
    first = false;
  }
  out += "},\"copies_to_host\":[";
  for (std::size_t n = 0; n < copies_to_host_.size(); ++n) {
    out += (n == 0 ? "" : ",") + std::to_string(copies_to_host_[n].load());
  }
  return out + "]";
}

std::string counted_json(const wire::StatsReply& counted) {
  return "{\"device_seconds\":" + decimal(static_cast<double>(counted.device_ns) * 1e-9, 6) +
         ",\"kernels\":" + std::to_string(counted.kernels) +
         ",\"memory_used\":" + list(counted.memory, &wire::MemoryUse::used) +
         ",\"memory_peak\":" + list(counted.memory, &wire::MemoryUse::peak) + "}";
}

}  // namespace gpupool::client
