#include "worker/process/takeovers.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>
#include <utility>

namespace gpupool::worker {
namespace {

constexpr auto patience = std::chrono::seconds(2);
constexpr int most = 4;

}  // namespace

void Takeovers::receive(std::unique_ptr<wire::Stream> stream) {
  if (present_.fetch_add(1) >= most) {
    --present_;
    return;
  }
  try {
    std::thread([this, taken = std::move(stream)] {
      serve(*taken);
      --present_;
    }).detach();
  } catch (...) {
    --present_;
    throw;
  }
}

void Takeovers::serve(wire::Stream& stream) {
  const std::unique_lock turn(turn_, patience);
  if (!turn) return;
  try {
    hand_over_(stream);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpupool-worker: the session was not handed over: %s\n", error.what());
  }
}

}  // namespace gpupool::worker
