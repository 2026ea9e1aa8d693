#include "libraries/nccl/factors.h"

#include <limits>

namespace gpupool::nccl {

int Factors::add(const Factor& factor) {
  const std::lock_guard lock(mutex_);
  // A program that makes one for each step would come to the end of numbers: then those of ended ones are
  // free.
  while (all_.contains(next_)) next_ = next_ == std::numeric_limits<int>::max() ? reductions : next_ + 1;
  const int made = next_;
  all_.emplace(made, factor);
  next_ = made == std::numeric_limits<int>::max() ? reductions : made + 1;
  return made;
}

bool Factors::remove(int operation) {
  const std::lock_guard lock(mutex_);
  return all_.erase(operation) != 0;
}

std::optional<Factor> Factors::find(int operation) const {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(operation);
  return found == all_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace gpupool::nccl
