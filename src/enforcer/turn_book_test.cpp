#include "enforcer/turn_book.h"

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <random>
#include <set>

using namespace gpupool::enforcer;

namespace {

constexpr std::uint64_t ms = 1'000'000;

struct Book {
  std::unique_ptr<BookData> data = std::make_unique<BookData>();
  TurnBook book{*data};
  std::set<std::size_t> dead;
  std::uint64_t now = 1000 * ms;

  std::optional<std::size_t> pass() {
    return book.pass(now, [this](std::size_t slot) { return !dead.contains(slot); });
  }
  void want(std::size_t slot) { book.want(slot, now); }
  /// `slot` has the turn, works for so long, wants it again and gives it up.
  void works(std::size_t slot, std::uint64_t device_ns) {
    REQUIRE(book.has(slot));
    now += device_ns;
    book.charge(slot, device_ns);
    want(slot);
    static_cast<void>(book.give_up(slot));
  }
};

}  // namespace

TEST_CASE("a lone session takes and gives back the turn without anybody else") {
  Book b;
  b.book.join(0, 250);
  for (int i = 0; i < 3; ++i) {
    CHECK(b.book.take(0, b.now));
    b.book.charge(0, 500 * ms);
    CHECK_FALSE(b.book.over(0, 1000 * ms));
    CHECK_FALSE(b.book.give_up(0));
  }
  CHECK_FALSE(b.book.holder());
}

TEST_CASE("who waits for the turn is not overtaken by who takes") {
  Book b;
  b.book.join(0, 500);
  b.book.join(1, 500);
  CHECK(b.book.take(0, b.now));
  CHECK_FALSE(b.book.take(1, b.now));
  b.want(1);
  CHECK_FALSE(b.pass());
  CHECK(b.book.give_up(0));
  CHECK_FALSE(b.book.take(0, b.now));
  CHECK(b.pass() == 1);
  CHECK(b.book.has(1));
}

TEST_CASE("the session with the least time by its share is next") {
  Book b;
  b.book.join(0, 250);
  b.book.join(1, 750);
  b.want(0);
  b.want(1);
  REQUIRE(b.pass() == 0);
  b.works(0, 10 * ms);  // 40 by its share
  REQUIRE(b.pass() == 1);
  b.works(1, 20 * ms);  // 26.7
  REQUIRE(b.pass() == 1);
  b.works(1, 20 * ms);  // 53.3
  CHECK(b.pass() == 0);
}

TEST_CASE("a turn ends when the session is a turn ahead, and what is under way counts") {
  Book b;
  b.book.join(0, 500);
  b.book.join(1, 500);
  REQUIRE(b.book.take(0, b.now));
  b.want(1);
  const std::uint64_t turn = b.book.turn_ns(0);
  b.book.charge(0, turn / 2);
  CHECK_FALSE(b.book.over(0, 0));
  CHECK(b.book.over(0, turn));
  b.book.charge(0, turn / 2);
  CHECK(b.book.over(0, 0));
}

TEST_CASE("one long kernel is paid for in full") {
  Book b;
  b.book.join(0, 500);
  b.book.join(1, 500);
  REQUIRE(b.book.take(0, b.now));
  b.want(1);
  b.works(0, 1000 * ms);
  std::uint64_t other = 0;
  while (b.pass() == 1) {
    b.works(1, 5 * ms);
    other += 5 * ms;
  }
  CHECK(other >= 1000 * ms);
  CHECK(other <= 1010 * ms);
}

TEST_CASE("who joins starts at the present") {
  Book b;
  b.book.join(0, 500);
  REQUIRE(b.book.take(0, b.now));
  b.book.charge(0, 60'000 * ms);
  b.book.join(1, 500);
  b.want(1);
  CHECK_FALSE(b.book.over(0, 0));
  b.works(0, 20 * ms);
  REQUIRE(b.pass() == 1);
  b.works(1, 25 * ms);
  CHECK(b.pass() == 0);  // and not only after a minute
}

TEST_CASE("who was away has a credit of one turn at most") {
  Book b;
  b.book.join(0, 500);
  b.book.join(1, 500);
  REQUIRE(b.book.take(0, b.now));
  b.book.charge(0, 60'000 * ms);
  b.want(1);
  b.works(0, 1 * ms);
  std::uint64_t first = 0;
  while (b.pass() == 1) {
    b.works(1, 1 * ms);
    first += ms;
  }
  CHECK(first <= b.book.turn_ns(1) + 2 * ms);
}

TEST_CASE("a new share counts from now on") {
  Book b;
  b.book.join(0, 500);
  b.book.join(1, 500);
  b.want(0);
  b.want(1);
  std::uint64_t got[2] = {0, 0};
  for (int i = 0; i < 4000; ++i) {
    if (i == 2000) {
      b.book.resize(0, 200);
      b.book.resize(1, 800);
      got[0] = got[1] = 0;
    }
    const auto next = b.pass();
    REQUIRE(next);
    b.works(*next, ms);
    got[*next] += ms;
  }
  CHECK(static_cast<double>(got[1]) / static_cast<double>(got[0]) == doctest::Approx(4).epsilon(0.03));
}

TEST_CASE("a dead holder, and dead ones that wait, keep nobody") {
  Book b;
  for (std::size_t slot = 0; slot < 4; ++slot) b.book.join(slot, 250);
  REQUIRE(b.book.take(0, b.now));
  b.want(1);
  b.want(2);
  b.want(3);
  CHECK_FALSE(b.pass());
  b.dead = {0, 1};
  CHECK(b.pass() == 2);
  CHECK(b.book.contended());
  CHECK(b.book.give_up(2));
  CHECK(b.pass() == 3);
  CHECK_FALSE(b.book.give_up(3));
}

TEST_CASE("who does not end its turn shares the device after a while, counted from when somebody waits") {
  Book b;
  b.book.join(0, 500);
  b.book.join(1, 500);
  REQUIRE(b.book.take(0, b.now));
  b.now += 60'000 * ms;
  b.want(1);
  CHECK_FALSE(b.pass());
  b.now += 1999 * ms;
  CHECK_FALSE(b.pass());
  b.now += 2 * ms;
  CHECK(b.pass() == 1);
  CHECK_FALSE(b.book.has(0));
  CHECK_FALSE(b.book.give_up(0));
  CHECK(b.book.has(1));
}

TEST_CASE(
    "while a kernel runs on with which the others lost patience, its session keeps nobody from the device") {
  Book b;
  b.book.join(0, 500);
  b.book.join(1, 500);
  const auto waits_for = [&](std::uint64_t time) {
    REQUIRE(b.book.take(0, b.now));
    b.want(1);
    b.now += time - ms;
    CHECK_FALSE(b.pass());
    b.now += 2 * ms;
    CHECK(b.pass() == 1);
    CHECK_FALSE(b.book.give_up(1));
  };
  waits_for(2000 * ms);
  waits_for(20 * ms);
  waits_for(20 * ms);
  b.book.drained(0);
  waits_for(2000 * ms);
  SUBCASE("who takes its place later is not blamed for it") {
    b.book.leave(0);
    b.book.join(0, 500);
    waits_for(2000 * ms);
  }
}

TEST_CASE("who gives up its place is not chosen") {
  Book b;
  b.book.join(0, 500);
  b.book.join(1, 500);
  REQUIRE(b.book.take(0, b.now));
  b.want(1);
  b.book.withdraw(1);
  CHECK_FALSE(b.book.contended());
  CHECK_FALSE(b.book.give_up(0));
  CHECK_FALSE(b.pass());
}

TEST_CASE("whatever the file holds, nothing breaks, and it heals") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    Book b;
    auto* const bytes = reinterpret_cast<unsigned char*>(b.data.get());
    for (std::size_t i = 0; i < sizeof(BookData); ++i) bytes[i] = static_cast<unsigned char>(random());
    b.dead.clear();
    for (std::size_t slot = 0; slot < most_sessions; ++slot) {
      if (slot > 1) b.dead.insert(slot);  // nobody holds the other places
    }
    for (std::size_t slot : {0U, 1U}) {
      b.book.leave(slot);
      b.book.join(slot, 500);
    }
    b.want(0);
    b.want(1);
    std::set<std::size_t> seen;
    for (int i = 0; i < 10; ++i) {
      const auto next = b.pass();
      REQUIRE(next);
      seen.insert(*next);
      static_cast<void>(b.book.over(*next, random()));
      static_cast<void>(b.book.behind(*next));
      b.works(*next, 20 * ms);
    }
    CHECK(seen == std::set<std::size_t>{0, 1});
  }
}
