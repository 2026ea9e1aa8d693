#include "client/process/session_belongings.h"

#include <mutex>
#include <vector>

namespace gpupool::client {
namespace {

struct Places {
  std::mutex mutex;
  std::vector<std::function<void()>> forget;
};
Places& places() {
  static Places& all = *new Places;
  return all;
}

}  // namespace

void forget_with_session(std::function<void()> forget) {
  const std::lock_guard lock(places().mutex);
  places().forget.push_back(std::move(forget));
}

void forget_belongings() {
  std::vector<std::function<void()>> all;
  {
    const std::lock_guard lock(places().mutex);
    all = places().forget;
  }
  for (const auto& forget : all) forget();
}

}  // namespace gpupool::client
