#include "worker/driver/driver_log.h"

#include <dlfcn.h>

namespace gpupool::worker {
namespace {

void collect(void* log, CUlogLevel level, char* message, std::size_t length) {
  if (level == CU_LOG_LEVEL_ERROR) static_cast<DriverLog*>(log)->add({message, length});
}

}  // namespace

DriverLog::DriverLog(const Driver& driver) {
  const auto add_callback =
      reinterpret_cast<decltype(&cuLogsRegisterCallback)>(dlsym(driver.library(), "cuLogsRegisterCallback"));
  unregister_ = reinterpret_cast<decltype(&cuLogsUnregisterCallback)>(
      dlsym(driver.library(), "cuLogsUnregisterCallback"));
  if (add_callback == nullptr || unregister_ == nullptr) return;
  if (add_callback(collect, this, &handle_) != CUDA_SUCCESS) handle_ = nullptr;
}

DriverLog::~DriverLog() {
  if (handle_ != nullptr) unregister_(handle_);
}

void DriverLog::add(std::string_view line) {
  while (line.ends_with('\n') || line.ends_with('\0')) line.remove_suffix(1);
  const std::lock_guard lock(mutex_);
  lines_.emplace_back(line);
  if (lines_.size() > most_lines) lines_.pop_front();
}

std::string DriverLog::take() {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const std::string& line : lines_) text += line + '\n';
  lines_.clear();
  return text;
}

}  // namespace gpupool::worker
