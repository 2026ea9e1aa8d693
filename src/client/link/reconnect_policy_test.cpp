#include "client/link/reconnect_policy.h"

#include <doctest/doctest.h>

#include <vector>

using namespace gpupool::client;
using namespace std::chrono_literals;

namespace {

using Kind = ReconnectPolicy::Step::Kind;
using Result = ReconnectPolicy::Result;

constexpr std::array<std::uint8_t, 16> mine{1, 2, 3};

SessionFile file(FileState state, std::string address = "here:1") {
  SessionFile file;
  file.state = state;
  file.session = mine;
  file.address = std::move(address);
  return file;
}

/// A break, and what is done about it while time passes.
struct Break {
  ReconnectPolicy::Clock::time_point start{}, now = start + 1h;
  ReconnectPolicy policy{mine, "here:1", 60s, start};
  std::optional<SessionFile> says = file(FileState::attached);

  Break() { policy.broken(now); }

  ReconnectPolicy::Step next(Result last) { return policy.next(says, last, now); }
  /// Dials until something else is to be done than to dial or to wait; when that was.
  ReconnectPolicy::Duration until_decided(Result last, ReconnectPolicy::Step& step, int& dials) {
    const auto begin = now;
    dials = 0;
    for (step = next(Result::none); step.kind == Kind::dial || step.kind == Kind::wait; step = next(last)) {
      if (step.kind == Kind::dial) ++dials;
      now += step.kind == Kind::wait ? step.time : 1ms;
    }
    return std::chrono::duration_cast<ReconnectPolicy::Duration>(now - begin);
  }
};

}  // namespace

TEST_CASE("a connection that broke is dialled at once, then after waits that grow to a second") {
  Break b;
  auto step = b.next(Result::none);
  CHECK(step.kind == Kind::dial);
  CHECK(step.address == "here:1");
  std::vector<ReconnectPolicy::Duration> waits;
  for (int n = 0; n < 7; ++n) {
    step = b.next(Result::failed);
    REQUIRE(step.kind == Kind::wait);
    waits.push_back(step.time);
    CHECK(b.next(Result::failed).kind == Kind::dial);
  }
  CHECK(waits == std::vector<ReconnectPolicy::Duration>{50ms, 100ms, 200ms, 400ms, 800ms, 1000ms, 1000ms});
}

TEST_CASE("it is given up after the limit") {
  Break b;
  ReconnectPolicy::Step step;
  int dials = 0;
  const auto time = b.until_decided(Result::failed, step, dials);
  CHECK(step.kind == Kind::give_up);
  CHECK(time >= 60s);
  CHECK(time < 62s);
  CHECK(dials > 55);
}

TEST_CASE("nobody listening where the session file says that the worker is: it is dead in three seconds") {
  Break b;
  ReconnectPolicy::Step step;
  int dials = 0;
  const auto time = b.until_decided(Result::refused, step, dials);
  CHECK(step.kind == Kind::give_up);
  CHECK(time >= 3s);
  CHECK(time < 5s);
}

TEST_CASE("a session without a lease is not given up: it rests until somebody wants it") {
  Break b;
  b.says = file(FileState::parked);
  ReconnectPolicy::Step step;
  int dials = 0;
  CHECK(b.until_decided(Result::failed, step, dials) >= 60s);
  CHECK(step.kind == Kind::rest);
  b.now += 5h;
  CHECK(b.next(Result::failed).kind == Kind::rest);
  b.says = file(FileState::attached, "there:2");
  b.policy.wanted(b.now);
  step = b.next(Result::refused);
  CHECK(step.kind == Kind::dial);
  CHECK(step.address == "there:2");
}

TEST_CASE("without a lease, where nobody listens, it rests after three seconds") {
  Break b;
  b.says = file(FileState::parked);
  ReconnectPolicy::Step step;
  int dials = 0;
  const auto time = b.until_decided(Result::refused, step, dials);
  CHECK(step.kind == Kind::rest);
  CHECK(time >= 3s);
  CHECK(time < 5s);
  CHECK(b.next(Result::refused).kind == Kind::rest);
  b.policy.wanted(b.now);
  CHECK(b.next(Result::refused).kind == Kind::dial);
  CHECK(b.next(Result::refused).kind == Kind::wait);
}

TEST_CASE("a lease that comes while it rests, or is tried for long already, has all the time that there is") {
  for (const std::chrono::seconds before : {59s, 3600s}) {
    Break b;
    b.says = file(FileState::parked);
    const auto begin = b.now;
    auto step = b.next(Result::none);
    while (b.now - begin < before) {
      b.now += step.kind == Kind::wait ? step.time : 1s;
      step = b.next(Result::failed);
    }
    b.says = file(FileState::attached);
    CHECK(b.next(Result::failed).kind == Kind::dial);
    int dials = 0;
    const auto time = b.until_decided(Result::failed, step, dials);
    CHECK(step.kind == Kind::give_up);
    CHECK(time > 58s);
    CHECK(dials > 50);
  }
}

TEST_CASE("the session is followed to another address, at once") {
  Break b;
  CHECK(b.next(Result::none).kind == Kind::dial);
  CHECK(b.next(Result::refused).kind == Kind::wait);
  b.now += 2900ms;
  b.says = file(FileState::attached, "there:2");
  const auto step = b.next(Result::refused);
  CHECK(step.kind == Kind::dial);
  CHECK(step.address == "there:2");
  CHECK(b.policy.address() == "there:2");
  b.now += 1s;
  CHECK(b.next(Result::refused).kind == Kind::wait);  // of the new place nothing was known
}

TEST_CASE("what is closed, replaced or unknown to the worker is lost at once") {
  Break closed;
  closed.says = file(FileState::closed);
  CHECK(closed.next(Result::none).kind == Kind::give_up);
  CHECK_FALSE(closed.next(Result::none).told);
  closed.says->told = true;
  CHECK(closed.next(Result::none).told);
  Break replaced;
  replaced.says->session = {9};
  CHECK(replaced.next(Result::none).kind == Kind::give_up);
  Break unknown;
  CHECK(unknown.next(Result::unknown).kind == Kind::give_up);
}

TEST_CASE("a session file that cannot be read changes nothing") {
  Break b;
  b.says = std::nullopt;
  const auto step = b.next(Result::none);
  CHECK(step.kind == Kind::dial);
  CHECK(step.address == "here:1");
}

TEST_CASE("a connection that breaks as soon as it is made is not tried without a pause, nor for ever") {
  Break b;
  const auto begin = b.now;
  CHECK(b.next(Result::none).kind == Kind::dial);
  ReconnectPolicy::Step step;
  do {
    b.policy.connected(b.now);
    b.now += 10ms;
    b.policy.broken(b.now);
    step = b.next(Result::none);
    if (step.kind == Kind::wait) b.now += step.time;
    if (step.kind == Kind::wait) step = b.next(Result::none);
  } while (step.kind == Kind::dial);
  CHECK(step.kind == Kind::give_up);
  CHECK(b.now - begin < 62s);
}
