#include "client/call/refuse.h"

#include <set>
#include <string>

#include "base/mutex.h"
#include "client/process/log.h"
#include "shared_api/error_log.h"

namespace gpupool::client {

int refuse(const char* function, const char* reason) {
  static Mutex& mutex = *new Mutex;
  static std::set<std::string>& named = *new std::set<std::string>;
  const std::string text = std::string(function) + " is not supported: " + reason;
  remember(text);
  error_log().add(text);
  bool first;
  {
    const MutexLock lock(mutex);
    first = named.insert(function).second;
  }
  if (first) log_line(text);
  return 801;  // CUDA_ERROR_NOT_SUPPORTED
}

}  // namespace gpupool::client
