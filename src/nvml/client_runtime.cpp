#include "nvml/client_runtime.h"

#include <dlfcn.h>

#include <charconv>
#include <memory>
#include <stdexcept>

#include "profile/driver_probe.h"

namespace gpupool::nvml {
namespace {

struct Close {
  void operator()(void* library) const { dlclose(library); }
};

/// Our libcuda, if loaded. NVIDIA's own has no gpupool_counters and is left alone.
std::unique_ptr<void, Close> loaded_runtime() {
  std::unique_ptr<void, Close> library(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD));
  if (library && dlsym(library.get(), "gpupool_counters") == nullptr) library.reset();
  return library;
}

/// The text behind `"key":`, without leading blanks; empty when the key is not there.
std::string_view value_of(std::string_view json, std::string_view key) {
  const std::string quoted = '"' + std::string(key) + '"';
  const std::size_t at = json.find(quoted);
  if (at == std::string_view::npos) return {};
  const std::size_t start = json.find_first_not_of(" :\t\n", at + quoted.size());
  return start == std::string_view::npos ? std::string_view{} : json.substr(start);
}

}  // namespace

std::optional<WorkerFigures> parse_counters(std::string_view json) {
  const std::string_view worker = value_of(json, "worker");
  if (!worker.starts_with('{')) return std::nullopt;
  WorkerFigures figures;
  const std::string_view seconds = value_of(worker, "device_seconds");
  std::from_chars(seconds.data(), seconds.data() + seconds.size(), figures.device_seconds);
  std::string_view used = value_of(worker, "memory_used");
  if (!used.starts_with('[')) return figures;
  used = used.substr(1, used.find(']') - 1);
  while (!used.empty() && figures.memory_used.size() < 64) {
    const std::size_t start = used.find_first_of("0123456789");
    if (start == std::string_view::npos) break;
    std::uint64_t bytes = 0;
    const auto [end, error] = std::from_chars(used.data() + start, used.data() + used.size(), bytes);
    if (error != std::errc{}) break;
    figures.memory_used.push_back(bytes);
    used.remove_prefix(static_cast<std::size_t>(end - used.data()));
  }
  return figures;
}

std::optional<WorkerFigures> worker_figures() {
  const auto library = loaded_runtime();
  if (!library) return std::nullopt;
  auto* counters =
      reinterpret_cast<int (*)(char*, std::size_t, int)>(dlsym(library.get(), "gpupool_counters"));
  std::string json(8192, '\0');
  int needed = counters(json.data(), json.size(), 0);
  if (needed >= static_cast<int>(json.size()) && needed < (1 << 24)) {
    json.assign(static_cast<std::size_t>(needed) + 1, '\0');
    needed = counters(json.data(), json.size(), 0);
  }
  if (needed <= 0 || needed >= static_cast<int>(json.size())) return std::nullopt;
  return parse_counters(std::string_view(json).substr(0, static_cast<std::size_t>(needed)));
}

std::optional<DeviceProfile> runtime_profile() {
  const auto library = loaded_runtime();
  if (!library) return std::nullopt;
  // Not initialised means that the program has made no CUDA call yet; NVML must not be the one to make it,
  // because programs that count devices before a fork rely on that.
  auto* count = reinterpret_cast<int (*)(int*)>(dlsym(library.get(), "cuDeviceGetCount"));
  int devices = 0;
  if (count == nullptr || count(&devices) != 0) return std::nullopt;
  try {
    return probe_driver(library.get());
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

}  // namespace gpupool::nvml
