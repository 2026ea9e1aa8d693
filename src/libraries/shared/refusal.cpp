#include "libraries/shared/refusal.h"

#include <cstdio>
#include <exception>
#include <mutex>
#include <set>
#include <string>

namespace gpupool::libraries {

void say_once(const char* subject, const char* text) {
  try {
    static std::mutex* const mutex = new std::mutex;
    static auto* const said = new std::set<std::string>;
    {
      const std::lock_guard lock(*mutex);
      if (!said->insert(subject).second) return;
    }
    std::fprintf(stderr, "gpupool: %s: %s\n", subject, text);
  } catch (const std::exception&) {
    // Without memory or locks nothing can be said; the status says it.
  }
}

int refuse(const char* function, const char* reason, int status) {
  say_once(function, reason);
  return status;
}

}  // namespace gpupool::libraries
