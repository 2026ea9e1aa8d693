#include "client/process/signal_front.h"

#include <array>
#include <atomic>

namespace gpupool::client {
namespace {

/// What our handler needs of each signal.
struct Fronted {
  struct sigaction program{};
  std::atomic<unsigned> count{0};
};
std::array<Fronted, 2> all;

Fronted& of(int signal) {
  return all[signal == SIGINT ? 0 : 1];
}

void notice(int signal, siginfo_t* info, void* context) {
  Fronted& mine = of(signal);
  mine.count.fetch_add(1);
  if ((mine.program.sa_flags & SA_SIGINFO) != 0) {
    mine.program.sa_sigaction(signal, info, context);
  } else {
    mine.program.sa_handler(signal);
  }
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == &notice;
}

}  // namespace

bool SignalFront::install(int signal) {
  if (sigaction(signal, nullptr, &before_) != 0 || is_ours(before_)) return false;
  const bool handled = (before_.sa_flags & SA_SIGINFO) != 0 ||
                       (before_.sa_handler != SIG_DFL && before_.sa_handler != SIG_IGN);
  if (!handled) return false;
  of(signal).program = before_;
  at_install_ = of(signal).count.load();
  struct sigaction ours = before_;
  ours.sa_sigaction = &notice;
  ours.sa_flags = (before_.sa_flags & ~static_cast<int>(SA_RESETHAND)) | SA_SIGINFO;
  if (sigaction(signal, &ours, nullptr) != 0) return false;
  signal_ = signal;
  return true;
}

void SignalFront::remove() {
  if (signal_ == 0) return;
  struct sigaction now{};
  if (sigaction(signal_, nullptr, &now) == 0 && is_ours(now)) sigaction(signal_, &before_, nullptr);
  signal_ = 0;
}

unsigned SignalFront::seen() const {
  return signal_ == 0 ? 0 : of(signal_).count.load() - at_install_;
}

}  // namespace gpupool::client
