#include "client/process/session_belongings.h"

#include <vector>

#include "base/mutex.h"

namespace gpupool::client {
namespace {

struct Places {
  Mutex mutex;
  std::vector<std::function<void()>> forget GUARDED_BY(mutex);
};
Places& places() {
  static Places& all = *new Places;
  return all;
}

}  // namespace

void forget_with_session(std::function<void()> forget) {
  const MutexLock lock(places().mutex);
  places().forget.push_back(std::move(forget));
}

void forget_belongings() {
  std::vector<std::function<void()>> all;
  {
    const MutexLock lock(places().mutex);
    all = places().forget;
  }
  for (const auto& forget : all) forget();
}

}  // namespace gpupool::client
