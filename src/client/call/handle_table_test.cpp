#include "client/call/handle_table.h"

#include <doctest/doctest.h>

#include <memory>
#include <set>

using namespace gpupool;

namespace {
struct Thing {
  int value = 0;
};
using Table = client::HandleTable<Thing, wire::Kind::event>;
std::unique_ptr<Table> fresh(std::uint32_t reserved = 0) {
  return std::make_unique<Table>(reserved);
}
}  // namespace

TEST_CASE("a handle finds its object until it is dropped, and its successor in the slot is another handle") {
  const auto table = fresh();
  Thing* thing = nullptr;
  const auto first = table->mint(thing);
  thing->value = 5;
  REQUIRE(table->find(first) != nullptr);
  CHECK(table->find(first)->value == 5);
  table->drop(first);
  CHECK(table->find(first) == nullptr);
  const auto second = table->mint(thing);
  CHECK(second != first);
  CHECK(thing->value == 0);
  CHECK(table->find(first) == nullptr);
}

TEST_CASE("a retired handle keeps its index until it is recycled") {
  const auto table = fresh();
  Thing* thing = nullptr;
  const auto first = table->mint(thing);
  CHECK(table->retire(first));
  CHECK(table->find(first) == nullptr);
  CHECK_FALSE(table->retire(first));
  CHECK(wire::Handle::from(table->mint(thing)).index != wire::Handle::from(first).index);
  table->recycle(first);
  const auto next = table->mint(thing);
  CHECK(wire::Handle::from(next).index == wire::Handle::from(first).index);
  CHECK(next != first);
}

TEST_CASE("values that are no handles find nothing") {
  const auto table = fresh();
  Thing* thing = nullptr;
  const auto handle = table->mint(thing);
  CHECK(table->find(0) == nullptr);
  CHECK(table->find(handle + 1) == nullptr);
  CHECK(table->find(handle ^ (std::uint64_t{3} << 48)) == nullptr);
  CHECK(table->find(~std::uint64_t{0}) == nullptr);
  table->drop(handle + 1);
  CHECK(table->find(handle) != nullptr);
}

TEST_CASE("reserved indices are never minted") {
  const auto table = fresh(64);
  Thing* thing = nullptr;
  CHECK(wire::Handle::from(table->mint(thing)).index == 64);
  const auto fixed = table->mint_at(3, thing);
  CHECK(wire::Handle::from(fixed).index == 3);
  CHECK(table->find(fixed) == thing);
}

TEST_CASE("each visits the living") {
  const auto table = fresh();
  Thing* thing = nullptr;
  const auto a = table->mint(thing);
  const auto b = table->mint(thing);
  const auto c = table->mint(thing);
  table->drop(b);
  int seen = 0;
  table->each([&](std::uint64_t value, const Thing&) { seen += value == a || value == c ? 1 : 100; });
  CHECK(seen == 2);
}

TEST_CASE("what is forgotten with its session is dead for ever, also when somebody was about to recycle it") {
  const auto table = fresh(2);
  Thing* thing = nullptr;
  const auto fixed = table->mint_at(1, thing);
  const auto first = table->mint(thing), second = table->mint(thing), third = table->mint(thing);
  table->drop(third);
  REQUIRE(table->retire(second));
  table->forget_all();
  CHECK(table->find(first) == nullptr);
  CHECK(table->find(fixed) == nullptr);
  CHECK_FALSE(table->retire(first));
  table->recycle(second);  // too late
  CHECK(table->mint_at(1, thing) == fixed);
  for (int session = 0; session < 3; ++session) {
    std::set<std::uint64_t> minted;
    for (int n = 0; n < 8; ++n) {
      const auto handle = table->mint(thing);
      CHECK(minted.insert(handle & 0xffffffff).second);  // no two with one index
      for (const auto old : {first, second, third}) CHECK(handle != old);
    }
    for (const auto old : {first, second, third}) CHECK(table->find(old) == nullptr);
    table->forget_all();
  }
}

TEST_CASE("an index of a forgotten handle rests for a whole session") {
  const auto table = fresh();
  Thing* thing = nullptr;
  const auto index = [](std::uint64_t handle) { return wire::Handle::from(handle).index; };
  const auto first = table->mint(thing);
  table->forget_all();
  CHECK(index(table->mint(thing)) != index(first));
  table->forget_all();
  const auto again = table->mint(thing);
  CHECK(index(again) == index(first));
  CHECK(again != first);
}
