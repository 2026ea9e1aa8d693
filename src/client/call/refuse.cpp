#include "client/call/refuse.h"

#include <mutex>
#include <set>
#include <string>

#include "client/process/log.h"
#include "shared_api/error_log.h"

namespace gpupool::client {

int refuse(const char* function, const char* reason) {
  static std::mutex& mutex = *new std::mutex;
  static std::set<std::string>& named = *new std::set<std::string>;
  const std::string text = std::string(function) + " is not supported: " + reason;
  remember(text);
  error_log().add(text);
  bool first;
  {
    const std::lock_guard lock(mutex);
    first = named.insert(function).second;
  }
  if (first) log_line(text);
  return 801;  // CUDA_ERROR_NOT_SUPPORTED
}

}  // namespace gpupool::client
