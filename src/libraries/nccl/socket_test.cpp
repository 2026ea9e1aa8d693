// What a listener does when this process may have no more descriptors.
#include "libraries/nccl/socket.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <chrono>

#include "libraries/nccl/status.h"

using namespace gpupool::nccl;

namespace {

/// While it lives, no descriptor can be made: all below the bound are taken.
class NoMoreDescriptors {
 public:
  explicit NoMoreDescriptors(int next) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit bound = before_;
    bound.rlim_cur = static_cast<rlim_t>(next);
    setrlimit(RLIMIT_NOFILE, &bound);
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;

 private:
  rlimit before_{};
};

template <class Body>
Result failure_of(Body&& body) {
  try {
    body();
    return success;
  } catch (const Failure& failure) {
    return failure.result;
  }
}

}  // namespace

TEST_CASE("a connection that finds no descriptor is a failure of the system, not one that has gone again") {
  const Patience patience{Clock::now() + std::chrono::seconds(20)};
  Address address;
  const Socket listener = listening(address);
  const Socket waiting = connected_to(address, patience);
  int next = 0;
  {
    const Socket one = connected_to(address, patience);
    next = one.descriptor();
  }
  // UBSan reads an object's type through a pipe when it first meets the type; later there is no descriptor
  // for one.
  Result why = failure_of([] { require(false, "first of its type"); });
  CHECK(why == invalid_argument);
  {
    const NoMoreDescriptors bound(next);
    why =
        failure_of([&] { static_cast<void>(accepted(listener, {Clock::now() + std::chrono::seconds(1)})); });
  }
  CHECK(why == system_error);
  // With descriptors it comes in.
  CHECK(static_cast<bool>(accepted(listener, patience)));
}
