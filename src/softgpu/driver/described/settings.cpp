#include "softgpu/driver/described/settings.h"

#include <sched.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>

#include "softgpu/driver/described/visible_cards.h"

namespace softgpu::driver {
namespace {

void complain(const char* name, const char* text) {
  std::fprintf(stderr, "softgpu: %s=%s is not usable, the default is taken\n", name, text);
}

std::optional<long> whole_number(const char* begin, const char* end) {
  long value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

long number_from(const char* name, long least, long most, long otherwise) {
  const char* text = std::getenv(name);
  if (!text || !*text) return otherwise;
  const auto value = whole_number(text, text + std::strlen(text));
  if (value && *value >= least && *value <= most) return *value;
  std::fprintf(stderr, "softgpu: %s=%s is no whole number from %ld to %ld, %ld is taken\n", name, text, least,
               most, otherwise);
  return otherwise;
}

unsigned usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? static_cast<unsigned>(count) : 1U;
}

void read_capability(Settings& settings) {
  const char* text = std::getenv("GPUPOOL_SOFTGPU_COMPUTE_CAPABILITY");
  if (!text || !*text) return;
  const char* dot = std::strchr(text, '.');
  if (dot) {
    const auto major = whole_number(text, dot);
    const auto minor = whole_number(dot + 1, text + std::strlen(text));
    if (major && minor && *major >= 5 && *major <= 99 && *minor >= 0 && *minor <= 9) {
      settings.capability_major = static_cast<int>(*major);
      settings.capability_minor = static_cast<int>(*minor);
      return;
    }
  }
  complain("GPUPOOL_SOFTGPU_COMPUTE_CAPABILITY", text);
}

void read_checks(Settings& settings) {
  const char* const text = std::getenv("GPUPOOL_SOFTGPU_CHECK");
  if (!text) return;
  std::string_view rest = text;
  softgpu::Checks& checks = settings.checks;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    const bool all = name == "all";
    if (!all && name != "memory" && name != "race" && name != "initialised" && name != "barrier") {
      std::fprintf(stderr,
                   "softgpu: GPUPOOL_SOFTGPU_CHECK=%s: there is no check '%.*s'; there are memory, race, "
                   "initialised, barrier and all\n",
                   text, static_cast<int>(name.size()), name.data());
      continue;
    }
    checks.memory |= all || name == "memory";
    checks.race |= all || name == "race";
    checks.initialised |= all || name == "initialised";
    checks.barrier |= all || name == "barrier";
  }
}

// Seconds, also parts of them.
void read_watchdog(Settings& settings) {
  constexpr const char* variable = "GPUPOOL_SOFTGPU_WATCHDOG_SECONDS";
  const char* const text = std::getenv(variable);
  if (!text || !*text) return;
  double seconds = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, seconds);
  if (error == std::errc() && stop == end && seconds >= 0 && seconds <= 1e9) {
    const auto whole = static_cast<long long>(seconds * 1000);
    settings.watchdog = std::chrono::milliseconds(seconds > 0 && whole == 0 ? 1 : whole);
    return;
  }
  complain(variable, text);
}

void read_visible(Settings& settings) {
  if (const char* list = std::getenv("CUDA_VISIBLE_DEVICES")) {
    settings.visible = visible_cards(list, settings.cards);
    return;
  }
  settings.visible.resize(static_cast<std::size_t>(settings.cards));
  std::iota(settings.visible.begin(), settings.visible.end(), 0);
}

std::string absolute_path(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value == '/' ? value : "";
}

std::string folder_of_kernel_packs() {
  if (auto own = absolute_path("GPUPOOL_SOFTGPU_KERNEL_PACKS"); !own.empty()) return own;
  if (const auto data = absolute_path("XDG_DATA_HOME"); !data.empty()) return data + "/gpupool/kernel-packs";
  const auto home = absolute_path("HOME");
  return home.empty() ? "" : home + "/.local/share/gpupool/kernel-packs";
}

}  // namespace

Settings Settings::from_environment() {
  Settings settings;
  settings.launch_blocking = number_from("CUDA_LAUNCH_BLOCKING", 0, 1, 0) == 1;
  settings.cards = static_cast<int>(number_from("GPUPOOL_SOFTGPU_DEVICES", 0, 16, 1));
  read_visible(settings);
  settings.memory_bytes =
      static_cast<std::size_t>(number_from("GPUPOOL_SOFTGPU_MEMORY_MIB", 16, 1L << 22, 8192)) << 20;
  settings.threads = static_cast<unsigned>(number_from("GPUPOOL_SOFTGPU_THREADS", 1, 256, usable_cores()));
  settings.execute = number_from("GPUPOOL_SOFTGPU_EXECUTE", 0, 1, 1) == 1;
  read_capability(settings);
  read_checks(settings);
  read_watchdog(settings);
  settings.kernel_packs = folder_of_kernel_packs();
  return settings;
}

}  // namespace softgpu::driver
