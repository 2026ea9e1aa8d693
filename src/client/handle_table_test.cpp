#include "client/handle_table.h"

#include <doctest/doctest.h>

#include <memory>

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
