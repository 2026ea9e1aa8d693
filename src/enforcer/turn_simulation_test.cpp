// Random loads on one simulated device, by the book of turns that workers use.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "enforcer/turn_book.h"

using namespace gpupool::enforcer;

namespace {

constexpr std::uint64_t us = 1'000, ms = 1'000'000, s = 1'000'000'000;

struct Session {
  std::uint32_t milli;
  std::uint64_t shortest_kernel, longest_kernel;
  std::uint64_t works_ns = 0, sleeps_ns = 0;  // in turns; 0: works all the time
  std::uint64_t device_ns = 0;
  std::uint64_t longest_wait = 0;
  std::uint64_t waits_since = 0;
  bool awake = true;
  std::uint64_t changes_at = ~0ULL;
};

class Simulation {
 public:
  Simulation(std::vector<Session> sessions, std::uint64_t seed)
      : sessions_(std::move(sessions)), random_(seed) {
    for (std::size_t slot = 0; slot < sessions_.size(); ++slot) {
      Session& one = sessions_[slot];
      book_.join(slot, one.milli);
      one.waits_since = now_;
      if (one.sleeps_ns != 0) one.changes_at = now_ + one.works_ns;
      book_.want(slot, now_);
    }
  }

  void run(std::uint64_t duration) {
    const std::uint64_t end = now_ + duration;
    while (now_ < end) {
      wake_and_sleep();
      const auto next = book_.pass(now_, [](std::size_t) { return true; });
      if (!next) {
        now_ += 100 * us;  // all sleep
        continue;
      }
      turn(*next);
    }
  }

  std::vector<Session>& sessions() { return sessions_; }
  TurnBook& book() { return book_; }
  void forget_results() {
    for (Session& one : sessions_) one.device_ns = one.longest_wait = 0;
  }
  /// Of the sessions given: largest relative error of a share.
  double error(std::size_t first = 0) const {
    double used = 0, shares = 0, worst = 0;
    for (std::size_t i = first; i < sessions_.size(); ++i) {
      used += static_cast<double>(sessions_[i].device_ns);
      shares += sessions_[i].milli;
    }
    for (std::size_t i = first; i < sessions_.size(); ++i)
      worst = std::max(
          worst,
          std::abs(static_cast<double>(sessions_[i].device_ns) / used / (sessions_[i].milli / shares) - 1));
    return worst;
  }

 private:
  void turn(std::size_t slot) {
    Session& one = sessions_[slot];
    one.longest_wait = std::max(one.longest_wait, now_ - one.waits_since);
    while (one.awake && !book_.over(slot, 0)) {
      const std::uint64_t kernel =
          std::uniform_int_distribution<std::uint64_t>(one.shortest_kernel, one.longest_kernel)(random_);
      now_ += kernel;
      one.device_ns += kernel;
      book_.charge(slot, kernel);
      wake_and_sleep();
      if (!book_.contended() && now_ > one.waits_since + 50 * ms) break;
    }
    now_ += 100 * us;  // between turns
    one.waits_since = now_;
    if (one.awake) book_.want(slot, now_);
    static_cast<void>(book_.give_up(slot));
  }

  void wake_and_sleep() {
    for (std::size_t slot = 0; slot < sessions_.size(); ++slot) {
      Session& one = sessions_[slot];
      if (now_ < one.changes_at) continue;
      one.awake = !one.awake;
      one.changes_at = now_ + (one.awake ? one.works_ns : one.sleeps_ns);
      if (book_.has(slot)) continue;
      if (one.awake) {
        one.waits_since = now_;
        book_.want(slot, now_);
      } else {
        book_.withdraw(slot);
      }
    }
  }

  std::unique_ptr<BookData> data_ = std::make_unique<BookData>();
  TurnBook book_{*data_};
  std::vector<Session> sessions_;
  std::mt19937_64 random_;
  std::uint64_t now_ = 5 * s;
};

}  // namespace

TEST_CASE(
    "under full load every session gets its share of ten seconds within 3 %, and nobody waits for long") {
  std::mt19937_64 random(1);
  for (std::uint64_t round = 0; round < 60; ++round) {
    std::vector<Session> sessions;
    std::uint32_t left = 1000;
    while (sessions.size() < 8 && left >= 50) {
      const auto milli =
          std::uniform_int_distribution<std::uint32_t>(50, std::max(50U, std::min(left, 600U)))(random);
      // Kernels of all sizes, as long as one is a small part of the smallest share of ten seconds.
      const auto longest = std::uniform_int_distribution<std::uint64_t>(20 * us, 6 * ms)(random);
      sessions.push_back({std::min(milli, left), 10 * us, longest});
      left -= std::min(milli, left);
    }
    Simulation simulation(sessions, round);
    simulation.run(s);
    simulation.forget_results();
    simulation.run(10 * s);
    CAPTURE(round);
    CHECK(simulation.error() <= 0.03);
    for (const Session& one : simulation.sessions()) {
      CAPTURE(one.milli);
      CHECK(one.longest_wait <= 600 * ms);
    }
  }
}

TEST_CASE("long kernels are paid back: the shares hold over a longer time") {
  Simulation simulation({{250, 100 * us, 2 * ms}, {250, 200 * ms, 400 * ms}, {500, 5 * ms, 20 * ms}}, 3);
  simulation.run(100 * s);
  CHECK(simulation.error() <= 0.03);
}

TEST_CASE("sessions that come and go take nothing from those that stay") {
  std::mt19937_64 random(5);
  for (std::uint64_t round = 0; round < 20; ++round) {
    const auto works = std::uniform_int_distribution<std::uint64_t>(5 * ms, 400 * ms)(random);
    const auto sleeps = std::uniform_int_distribution<std::uint64_t>(5 * ms, 4 * s)(random);
    Simulation simulation(
        {{250, 100 * us, 2 * ms, works, sleeps}, {300, 100 * us, 2 * ms}, {450, 100 * us, 4 * ms}}, round);
    simulation.run(20 * s);
    CAPTURE(works);
    CAPTURE(sleeps);
    CHECK(simulation.error(1) <= 0.03);
    // A sleeper gets its share of the time in which it is awake, and a turn more each time it wakes.
    const double awake = static_cast<double>(works) / static_cast<double>(works + sleeps);
    const double wakes = 20e9 / static_cast<double>(works + sleeps) + 1;
    const auto got = static_cast<double>(simulation.sessions()[0].device_ns);
    CHECK(got <= 0.25 * awake * 20e9 * 1.05 + wakes * 2 * 4e6 + 50e6);
  }
}

TEST_CASE("who joins late gets its share from then on, and no more") {
  Simulation simulation({{500, 100 * us, 2 * ms}, {500, 100 * us, 2 * ms}}, 9);
  simulation.sessions()[1].awake = false;
  simulation.book().withdraw(1);
  simulation.run(60 * s);
  CHECK(simulation.sessions()[1].device_ns == 0);
  simulation.forget_results();
  simulation.sessions()[1].awake = true;
  simulation.book().want(1, 65 * s);
  simulation.run(s);
  CHECK(simulation.error() <= 0.03);
}
