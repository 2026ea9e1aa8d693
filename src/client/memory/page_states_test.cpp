#include "client/memory/page_states.h"

#include <doctest/doctest.h>

#include <random>

using namespace gpupool::client;
using State = PageStates::State;
using Kind = PageStates::Step::Kind;
using Span = PageStates::Span;

namespace {

/// Does what a step asks for.
void finish(PageStates& pages, const PageStates::Step& step) {
  if (step.kind != Kind::nothing) pages.set(step.span, step.then);
}

}  // namespace

TEST_CASE("fresh memory is the same on both sides: reading needs nothing, writing opens a block") {
  PageStates pages(100);
  CHECK(pages.at(0) == State::shared);
  const auto step = pages.touched(20, true);
  CHECK(step.kind == Kind::open);
  CHECK(step.span == Span{16, 16});
  finish(pages, step);
  CHECK(pages.at(20) == State::dirty);
  CHECK(pages.at(15) == State::shared);
  CHECK(pages.at(32) == State::shared);
  CHECK(pages.touched(20, true).kind == Kind::nothing);
}

TEST_CASE("what the device may have written is fetched, and a write fetches and opens at once") {
  PageStates pages(64);
  pages.set({0, 64}, State::device);
  CHECK_FALSE(pages.any_on_host());
  const auto read = pages.touched(3, false);
  CHECK(read.kind == Kind::fetch);
  CHECK(read.then == State::shared);
  finish(pages, read);
  const auto write = pages.touched(40, true);
  CHECK(write.kind == Kind::fetch);
  CHECK(write.then == State::dirty);
  finish(pages, write);
  CHECK(pages.spans(State::dirty) == std::vector<Span>{{32, 16}});
  CHECK(pages.any_on_host());
}

TEST_CASE("a span never reaches into pages of another state") {
  PageStates pages(64);
  pages.set({0, 64}, State::device);
  pages.set({20, 2}, State::dirty);
  CHECK(pages.touched(18, false).span == Span{16, 4});
  CHECK(pages.touched(25, false).span == Span{22, 10});
}

TEST_CASE("accesses in order get larger spans up to a limit, others start small again") {
  PageStates pages(1 << 20);
  pages.set({0, 1 << 20}, State::device);
  std::uint64_t at = 0, faults = 0, largest = 0;
  while (at < (1 << 20)) {
    const auto step = pages.touched(at, false);
    REQUIRE(step.span.first == at);
    largest = std::max(largest, step.span.count);
    finish(pages, step);
    at += step.span.count;
    ++faults;
  }
  CHECK(largest == PageStates::last_window);
  CHECK(faults < 300);
  pages.set({0, 1 << 20}, State::device);
  CHECK(pages.touched(5000, false).span.count == PageStates::first_window);
}

TEST_CASE("the last block ends with the range") {
  PageStates pages(21);
  CHECK(pages.touched(20, true).span == Span{16, 5});
}

TEST_CASE("against a plain array: any sequence of changes leaves the same states") {
  constexpr std::uint64_t count = 200;
  std::mt19937_64 random(7);
  PageStates pages(count);
  std::vector<State> plain(count, State::shared);
  for (int round = 0; round < 20'000; ++round) {
    if (random() % 3 == 0) {
      const std::uint64_t first = random() % count, size = random() % (count - first) + 1;
      const auto state = static_cast<State>(random() % 3);
      pages.set({first, size}, state);
      std::fill_n(plain.begin() + static_cast<std::ptrdiff_t>(first), size, state);
    } else {
      const std::uint64_t page = random() % count;
      const auto step = pages.touched(page, random() % 2 == 0);
      CHECK((step.kind == Kind::nothing) == (plain[page] == State::dirty));
      REQUIRE(page - step.span.first < step.span.count);
      REQUIRE(step.span.first + step.span.count <= count);
      for (auto n = step.span.first; n < step.span.first + step.span.count; ++n)
        REQUIRE(plain[n] == plain[page]);
      finish(pages, step);
      if (step.kind != Kind::nothing)
        std::fill_n(plain.begin() + static_cast<std::ptrdiff_t>(step.span.first), step.span.count, step.then);
    }
    for (std::uint64_t n = 0; n < count; ++n) REQUIRE(pages.at(n) == plain[n]);
  }
}
