// Several sessions of one book, each with threads of its own, in one process: the locks belong to open files,
// so they exclude each other as those of different processes do.
#include "enforcer/device_turn.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

using namespace gpupool::enforcer;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/gpupool-turn-XXXXXX";
    path = ::mkdtemp(name);
    const std::ofstream made(book());
  }
  ~Folder() {
    ::unlink(book().c_str());
    ::rmdir(path.c_str());
  }
  [[nodiscard]] std::string book() const { return path + "/book"; }
};

const doctest::test_suite measures("measures");  // time: they run alone, and again where the machine was busy

/// A device that sleeps for as long as the kernels given to it take.
struct Device final : Gauge {
  explicit Device(std::chrono::nanoseconds measured_before = {}) : finished(measured_before) {}

  std::mutex mutex;
  Clock::time_point free_at = Clock::now();
  std::chrono::nanoseconds finished;
  struct Piece {
    std::uint64_t number;
    Clock::time_point end;
    std::chrono::nanoseconds busy;
  };
  std::deque<Piece> pieces;
  std::chrono::nanoseconds open{0};
  std::uint64_t number = 0;
  std::atomic<bool> client_runs{false};  // a function of the client's, which the device waits for

  void launch(std::chrono::nanoseconds kernel) {
    const std::lock_guard lock(mutex);
    free_at = std::max(free_at, Clock::now()) + kernel;
    open += kernel;
  }
  std::uint64_t cut() override {
    const std::lock_guard lock(mutex);
    if (open.count() != 0) pieces.push_back({number, free_at, open});
    open = {};
    return number++;
  }
  Reading look() override {
    const std::lock_guard lock(mutex);
    while (!pieces.empty() && pieces.front().end <= Clock::now()) {
      finished += pieces.front().busy;
      pieces.pop_front();
    }
    return {static_cast<std::uint64_t>(finished.count()), pieces.empty() ? number : pieces.front().number,
            !pieces.empty() || open.count() != 0 || client_runs};
  }
  bool waits_for_client() {
    const std::lock_guard lock(mutex);
    return client_runs && free_at <= Clock::now();
  }
};

struct Session {
  std::atomic<std::uint32_t> milli;
  Device device;
  std::atomic<bool> attached{true};
  DeviceTurn turn;

  Session(const Folder& folder, std::uint32_t share, bool strict = false,
          std::chrono::nanoseconds measured_before = {})
      : milli(share),
        device(measured_before),
        turn(folder.book(), milli, strict, device,
             {[this] { return attached.load(); }, [this] { return device.waits_for_client(); }}) {}

  bool launch(std::chrono::nanoseconds kernel = 1ms) {
    if (!turn.before_work(1)) return false;
    device.launch(kernel);
    return true;
  }
  void pause() { turn.paused(device.cut()); }
};

std::chrono::nanoseconds time_of(auto action) {
  const auto began = Clock::now();
  action();
  return Clock::now() - began;
}

void eventually(auto condition) {
  while (!condition()) std::this_thread::sleep_for(1ms);
}

/// Kernels without end, until told to stop.
struct Load {
  Session& session;
  std::atomic<bool> stop{false};
  std::thread thread{[this] {
    while (!stop && session.launch()) {
    }
    session.pause();
  }};
  explicit Load(Session& one) : session(one) {}
  ~Load() {
    stop = true;
    thread.join();
  }
};

}  // namespace

TEST_CASE("a lone session has the device at once, again and again") {
  const Folder folder;
  Session one(folder, 100);
  const auto took = time_of([&] {
    for (int i = 0; i < 100; ++i) {
      CHECK(one.launch(10us));
      std::this_thread::sleep_for(20us);
      one.pause();
    }
  });
  CHECK(took < 60s);  // waiting each time for what ends a turn that nobody gives back would take minutes
}

TEST_CASE("an idle session does not keep the turn, whether it knows that its work is done or not" *
          measures) {
  const Folder folder;
  Session one(folder, 500);
  Session other(folder, 500);
  REQUIRE(one.launch(5ms));
  one.pause();  // the work is still under way
  const auto waited = time_of([&] { CHECK(other.launch()); });
  CHECK(waited < 500ms);
  other.pause();
  CHECK(one.launch());
  one.pause();
}

TEST_CASE("two sessions never give the device work at the same time, and share it as told" * measures) {
  const Folder folder;
  Session one(folder, 250);
  Session other(folder, 750);
  {
    const Load a(one), b(other);
    std::this_thread::sleep_for(1500ms);
  }
  const auto first = static_cast<double>(one.device.look().busy_ns);
  const auto second = static_cast<double>(other.device.look().busy_ns);
  CHECK(second / first == doctest::Approx(3).epsilon(0.15));
  CHECK(first + second <=
        1.6e9);  // each measures its own clock: together more than the time would be an overlap
}

TEST_CASE("a new share counts at once" * measures) {
  const Folder folder;
  Session one(folder, 100);
  Session other(folder, 900);
  const Load a(one), b(other);
  std::this_thread::sleep_for(300ms);
  one.milli = 900;
  other.milli = 100;
  const auto before = one.device.look().busy_ns;
  const auto other_before = other.device.look().busy_ns;
  std::this_thread::sleep_for(1s);
  CHECK(one.device.look().busy_ns - before > 4 * (other.device.look().busy_ns - other_before));
}

TEST_CASE("a session that comes from another device is not charged for what it did there") {
  const Folder folder;
  Session one(folder, 200, true, 600s);
  std::atomic<bool> through{false};
  std::thread launches([&] { through = one.launch(); });
  for (int n = 0; n < 600 && !through; ++n) std::this_thread::sleep_for(100ms);
  one.attached = false;  // at its share it would pay for fifty minutes
  launches.join();
  CHECK(through);
  one.pause();
}

TEST_CASE("a hard cap holds on a device that nobody else wants" * measures) {
  const Folder folder;
  Session one(folder, 300, true);
  {
    const Load a(one);
    std::this_thread::sleep_for(1500ms);
  }
  const double part = static_cast<double>(one.device.look().busy_ns) / 1.5e9;
  CHECK(part < 0.36);  // a burst at the start is allowed
  CHECK(part > 0.24);
}

TEST_CASE("a hard cap holds while the device waits for a function of the client's" * measures) {
  const Folder folder;
  Session one(folder, 300, true);
  one.device.client_runs = true;
  {
    const Load a(one);
    std::this_thread::sleep_for(1500ms);
  }
  one.device.client_runs = false;
  const double part = static_cast<double>(one.device.look().busy_ns) / 1.5e9;
  CHECK(part < 0.36);
  CHECK(part > 0.15);  // and what is needed does come
}

TEST_CASE("a session whose lease ends while it waits gives up its place") {
  const Folder folder;
  Session one(folder, 500);
  Session other(folder, 500);
  REQUIRE(one.launch(1h));  // and goes on executing: nothing but time takes the turn away
  std::atomic<bool> refused{false};
  std::thread waits([&] { refused = !other.launch(); });
  eventually([&] { return one.turn.contended(); });
  other.attached = false;
  waits.join();
  CHECK(refused);
  CHECK_FALSE(one.turn.contended());
  one.pause();
}

TEST_CASE("the death of a session that has the turn delays the others by less than a tenth of a second" *
          measures) {
  const Folder folder;
  std::array<int, 2> ready{};
  REQUIRE(::pipe(ready.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    Session doomed(folder, 500);
    static_cast<void>(doomed.launch(10s));
    static_cast<void>(::write(ready[1], "x", 1));
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  Session other(folder, 500);
  std::atomic<bool> through{false};
  std::thread waits([&] { through = other.launch(); });
  std::this_thread::sleep_for(50ms);
  CHECK_FALSE(through);
  const auto delay = time_of([&] {
    ::kill(child, SIGKILL);
    waits.join();
  });
  CHECK(through);
  CHECK(delay < 100ms);
  other.pause();
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("a file that is no book is refused with a sentence, and stays as it is") {
  const Folder folder;
  SUBCASE("text") {
    std::ofstream(folder.book()) << "not a book";
  }
  SUBCASE("a book of another version") {
    std::ofstream file(folder.book());
    file << std::string(sizeof(BookData) + 64, 'x');
  }
  SUBCASE("nothing") {
    ::unlink(folder.book().c_str());
  }
  SUBCASE("a link") {
    ::unlink(folder.book().c_str());
    REQUIRE(::symlink("/etc/passwd", folder.book().c_str()) == 0);
  }
  std::atomic<std::uint32_t> milli{100};
  Device device;
  CHECK_THROWS_AS(
      DeviceTurn(folder.book(), milli, false, device, {[] { return true; }, [] { return false; }}),
      std::runtime_error);
}

TEST_CASE("a file whose maker died before it had said what it is becomes a book all the same") {
  const Folder folder;
  REQUIRE(::truncate(folder.book().c_str(), sizeof(BookData) + 64) == 0);
  std::atomic<std::uint32_t> milli{100};
  Device device;
  DeviceTurn turn(folder.book(), milli, false, device, {[] { return true; }, [] { return false; }});
  CHECK(turn.before_work(1));
}

namespace {

/// A device that runs one endless kernel whenever it may, and counts for how long it did.
struct Endless final : Gauge {
  std::mutex mutex;
  std::chrono::nanoseconds ran{0};
  std::optional<Clock::time_point> since = Clock::now();
  bool runs() {
    const std::lock_guard lock(mutex);
    return since.has_value();
  }
  std::uint64_t cut() override { return 0; }
  Reading look() override {
    const std::lock_guard lock(mutex);
    const auto all = ran + (since ? Clock::now() - *since : 0ns);
    return {static_cast<std::uint64_t>(all.count()), 0, true};
  }
  [[nodiscard]] bool can_stop() const override { return true; }
  bool stop() override {
    const std::lock_guard lock(mutex);
    if (since) ran += Clock::now() - *std::exchange(since, std::nullopt);
    return true;
  }
  void go_on() override {
    const std::lock_guard lock(mutex);
    if (!since) since = Clock::now();
  }
};

}  // namespace

TEST_CASE("endless kernels take turns where the device can stop them") {
  const Folder folder;
  std::array<Endless, 2> devices;
  std::array<std::atomic<std::uint32_t>, 2> shares{250U, 750U};
  std::array<std::atomic<bool>, 2> stands{false, false};
  std::deque<DeviceTurn> turns;
  for (std::size_t n = 0; n < 2; ++n) {
    turns.emplace_back(
        folder.book(), shares[n], false, devices[n],
        SessionFacts{[] { return true; }, [] { return false; }, [&stands, n] { return stands[n].load(); }});
  }
  // Their calls ask for the turn once, and nobody asks afterwards: the threads behind them keep it going.
  std::thread other([&] {
    CHECK(turns[1].before_work(1));
    turns[1].paused(0);
  });
  CHECK(turns[0].before_work(1));
  turns[0].paused(0);
  other.join();
  for (int round = 0; round < 5; ++round) {
    eventually([&] { return devices[0].runs() && !devices[1].runs(); });
    eventually([&] { return devices[1].runs() && !devices[0].runs(); });
  }
  SUBCASE("one whose work stands still for another reason leaves the device to the other") {
    stands[0] = true;
    eventually([&] { return devices[1].runs(); });
    const auto before = devices[1].look().busy_ns;
    eventually([&] { return devices[1].look().busy_ns > before + 100'000'000; });
    stands[0] = false;
    devices[0].stop();  // as the worker does until there is a lease
    devices[0].go_on();
    eventually([&] { return devices[0].runs() && !devices[1].runs(); });
  }
}
