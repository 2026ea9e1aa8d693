#include "worker/lease/memory_account.h"

#include <doctest/doctest.h>

#include <limits>
#include <thread>
#include <vector>

using gpupool::worker::MemoryAccount;

TEST_CASE("bytes up to the limit fit, one more does not and changes nothing") {
  MemoryAccount account(100);
  CHECK(account.reserve(60));
  CHECK(account.reserve(40));
  CHECK_FALSE(account.reserve(1));
  CHECK(account.used() == 100);
  CHECK(account.reserve(0));
}

TEST_CASE("sizes near 2^64 do not wrap around the limit") {
  MemoryAccount account(100);
  REQUIRE(account.reserve(50));
  CHECK_FALSE(account.reserve(std::numeric_limits<std::uint64_t>::max()));
  CHECK_FALSE(account.reserve(std::numeric_limits<std::uint64_t>::max() - 49));
  CHECK(account.used() == 50);
}

TEST_CASE("the peak stays after a release, until it is reset to what is used") {
  MemoryAccount account(100);
  REQUIRE(account.reserve(80));
  account.release(70);
  CHECK(account.peak() == 80);
  account.reset_peak();
  CHECK(account.peak() == 10);
}

TEST_CASE("a release of more than is used leaves zero") {
  MemoryAccount account(100);
  REQUIRE(account.reserve(10));
  account.release(11);
  CHECK(account.used() == 0);
  CHECK(account.reserve(100));
}

TEST_CASE("the limit grows freely but never shrinks below what is used") {
  MemoryAccount account(100);
  REQUIRE(account.reserve(60));
  CHECK_FALSE(account.resize(59));
  CHECK(account.limit() == 100);
  CHECK(account.resize(60));
  CHECK_FALSE(account.reserve(1));
  CHECK(account.resize(1000));
  CHECK(account.reserve(940));
}

TEST_CASE("an account without a limit given holds nothing") {
  MemoryAccount account;
  CHECK_FALSE(account.reserve(1));
}

TEST_CASE("threads together never pass the limit") {
  MemoryAccount account(1000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&account] {
      for (int round = 0; round < 20'000; ++round) {
        if (account.reserve(300)) account.release(300);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(account.used() == 0);
  CHECK(account.peak() <= 1000);
  CHECK(account.peak() >= 300);
}

TEST_CASE("the context's reserve is in use from the start and is nobody's to have") {
  MemoryAccount account(100, 30);
  CHECK(account.used() == 30);
  CHECK(account.peak() == 30);
  CHECK(account.room() == 70);
  CHECK(account.allocated() == 0);
  CHECK_FALSE(account.reserve(71));
  CHECK(account.reserve(70));
  CHECK(account.allocated() == 70);
  account.release(1000);
  CHECK(account.used() == 30);
  CHECK_FALSE(account.resize(29));
  CHECK(account.resize(50));
  CHECK(account.room() == 20);
}

TEST_CASE("what lies beside allocations is counted with them and told apart from them") {
  MemoryAccount account(100);
  REQUIRE(account.reserve(60));
  CHECK_FALSE(account.reserve_beside(41));
  CHECK(account.beside() == 0);
  CHECK(account.reserve_beside(40));
  CHECK(account.beside() == 40);
  CHECK(account.used() == 100);
  account.release_beside(40);
  CHECK(account.beside() == 0);
  CHECK(account.used() == 60);
}

TEST_CASE("memory of other processes is known while it is open") {
  MemoryAccount account(100);
  account.import_began();
  CHECK(account.imports() == 1);
  account.import_ended();
  CHECK(account.imports() == 0);
}

TEST_CASE("what there was no room for is told once, with its size") {
  MemoryAccount account(100);
  CHECK(account.take_refusal() == 0);
  CHECK(account.reserve(40));
  CHECK(account.take_refusal() == 0);
  CHECK_FALSE(account.reserve(61));
  CHECK_FALSE(account.reserve_beside(70));
  CHECK(account.take_refusal() == 70);
  CHECK(account.take_refusal() == 0);
  account.refused(30);  // the share has room, the device has not
  CHECK(account.take_refusal() == 30);
}
