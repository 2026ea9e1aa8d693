// A signal handler of ours that stands in front of the program's own, which is called all the same.
#pragma once

#include <csignal>

namespace gpupool::client {

/// For SIGINT and SIGTERM. While the main thread is in a call of ours: interpreters deal with signals there,
/// and nobody else may change their handlers meanwhile.
class SignalFront {
 public:
  SignalFront() = default;
  ~SignalFront() { remove(); }
  SignalFront(const SignalFront&) = delete;
  SignalFront& operator=(const SignalFront&) = delete;

  /// False, and nothing changed: the program leaves the signal to the system, or ignores it.
  bool install(int signal);
  void remove();
  /// How often the signal has come since install().
  [[nodiscard]] unsigned seen() const;

 private:
  int signal_ = 0;
  unsigned at_install_ = 0;
  struct sigaction before_{};
};

}  // namespace gpupool::client
