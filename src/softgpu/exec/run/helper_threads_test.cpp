// Work that several threads share: a thread that joins has left before share() returns, whoever else shares
// at that time.
#include "softgpu/exec/run/helper_threads.h"

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "softgpu/exec/test/test_kernel.h"

namespace softgpu {
namespace {

TEST_CASE("each part of shared work has a number of its own, and none goes on after the end") {
  HelperThreads helpers(3);
  CHECK(helpers.count() == 3);
  for (int round = 0; round < 2000; ++round) {
    std::atomic<uint32_t> seen{0}, inside{0};
    helpers.share(2, [&](uint32_t number) {
      ++inside;
      CHECK_UNARY(number <= 2);
      CHECK_UNARY((seen.fetch_or(1u << number) & (1u << number)) == 0);
      --inside;
    });
    CHECK((seen & 1) != 0);
    CHECK(inside == 0);
  }
}

TEST_CASE("helpers come to work that lasts, asleep or awake") {
  HelperThreads helpers(2);
  for (const auto pause : {std::chrono::milliseconds(0), std::chrono::milliseconds(20)}) {
    std::this_thread::sleep_for(pause);
    std::atomic<uint32_t> come{0};
    helpers.share(2, [&](uint32_t) {
      ++come;
      while (come != 3) std::this_thread::yield();
    });
    CHECK(come == 3);
  }
}

TEST_CASE("several threads share work at once") {
  HelperThreads helpers(2);
  std::vector<std::thread> owners;
  for (int owner = 0; owner < 4; ++owner) {
    owners.emplace_back([&helpers] {
      for (int round = 0; round < 500; ++round) {
        std::atomic<uint32_t> left{50};  // gone when share() returns
        helpers.share(2, [&left](uint32_t) {
          for (uint32_t now = left; now != 0;) {
            if (left.compare_exchange_weak(now, now - 1)) now = left;
          }
        });
        CHECK(left == 0);
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
}

TEST_CASE("another thread may be one of the helpers, if it names the owner of work that wants some") {
  HelperThreads helpers(1);
  const std::thread::id owner = std::this_thread::get_id();
  CHECK(!helpers.wanted());
  CHECK(!helpers.help(owner));
  for (int round = 0; round < 500; ++round) {
    std::atomic<unsigned> inside{0};
    std::atomic<bool> over{false};
    std::thread other([&] {
      while (!over) helpers.help(owner);
    });
    helpers.share(1, [&](uint32_t number) {
      ++inside;
      CHECK_UNARY(number <= 1);
      while (inside != 2) std::this_thread::yield();
    });
    CHECK(inside == 2);
    over = true;
    other.join();
  }
  CHECK(!helpers.help(owner));
}

TEST_CASE("who would help somebody else is not taken") {
  HelperThreads helpers(1);
  helpers.share(1, [&](uint32_t number) {
    if (number == 0) CHECK_UNARY(!helpers.help(std::thread::id()));
  });
}

TEST_CASE("a call that a helper takes is made once, whatever else there is to do") {
  std::atomic<unsigned> made{0};
  unsigned taken = 0;
  {
    HelperThreads helpers(2);
    for (int round = 0; round < 2000; ++round) {
      helpers.share(2, [](uint32_t) {});  // wakes them
      taken += helpers.in_a_moment([&made] { ++made; }) ? 1 : 0;
      if (round % 2 == 0) helpers.share(2, [](uint32_t) {});
      // While nothing else happens, too.
      if (round % 10 == 0) {
        while (made != taken) std::this_thread::yield();
      }
    }
  }
  CHECK(made == taken);
}

TEST_CASE("a helper that is awake takes calls") {
  constexpr unsigned enough = 100;
  std::atomic<unsigned> made{0};
  unsigned taken = 0;
  {
    // Long, for machines that are busy with other things.
    HelperThreads helpers(2, std::chrono::milliseconds(200));
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (taken < enough && std::chrono::steady_clock::now() < end) {
      std::atomic<uint32_t> come{0};
      helpers.share(1, [&come](uint32_t) {  // after which one of them is awake
        ++come;
        while (come != 2) std::this_thread::yield();
      });
      taken += helpers.in_a_moment([&made] { ++made; }) ? 1 : 0;
    }
  }
  CHECK(taken == enough);
  CHECK(made == taken);
}

TEST_CASE("helpers that sleep or work are not asked to call") {
  HelperThreads helpers(1), none(0);
  CHECK(!none.in_a_moment([] { FAIL("nobody is there"); }));
  std::atomic<bool> inside{false}, over{false};
  std::thread owner([&] {
    helpers.share(1, [&](uint32_t number) {
      if (number == 1) inside = true;
      while (!over) std::this_thread::yield();
    });
  });
  while (!inside) std::this_thread::yield();
  CHECK(!helpers.in_a_moment([] { FAIL("the helper works"); }));
  over = true;
  owner.join();
  bool asleep = false;
  for (int n = 0; n < 500 && !asleep; ++n) {  // later on a busy machine
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    asleep = !helpers.in_a_moment([] {});
  }
  CHECK(asleep);
}

TEST_CASE("without helpers the owner does it all") {
  HelperThreads none(0);
  std::set<uint32_t> numbers;
  none.share(5, [&](uint32_t number) { numbers.insert(number); });
  CHECK(numbers == std::set<uint32_t>{0});
}

}  // namespace
}  // namespace softgpu
