#include "worker/objects/handle_table.h"

#include <doctest/doctest.h>

using namespace gpupool;

namespace {
struct Opaque;
Opaque* pointer(std::uintptr_t value) {
  return reinterpret_cast<Opaque*>(value);
}
std::uint64_t handle(wire::Kind kind, std::uint32_t index, std::uint16_t generation = 0) {
  return wire::Handle{kind, generation, index}.value();
}
}  // namespace

TEST_CASE("only what was bound is found, under its own kind and generation") {
  worker::HandleTable table;
  const auto event = handle(wire::Kind::event, 3);
  REQUIRE(table.vacant(wire::Kind::event, event));
  table.bind(wire::Kind::event, event, pointer(0x1000));
  Opaque* found = nullptr;
  CHECK(table.find(wire::Kind::event, event, found));
  CHECK(found == pointer(0x1000));
  CHECK_FALSE(table.vacant(wire::Kind::event, event));
  CHECK_FALSE(table.find(wire::Kind::stream, event, found));
  CHECK_FALSE(table.find(wire::Kind::event, handle(wire::Kind::event, 2), found));
  CHECK_FALSE(table.find(wire::Kind::event, handle(wire::Kind::event, 3, 1), found));
  table.drop(wire::Kind::event, event);
  CHECK_FALSE(table.find(wire::Kind::event, event, found));
}

TEST_CASE("special streams mean themselves, but only as streams") {
  worker::HandleTable table;
  Opaque* found = pointer(9);
  CHECK(table.find(wire::Kind::stream, 0, found));
  CHECK(found == nullptr);
  CHECK(table.find(wire::Kind::stream, 2, found));
  CHECK(found == pointer(2));
  CHECK_FALSE(table.find(wire::Kind::stream, 3, found));
  CHECK_FALSE(table.find(wire::Kind::event, 0, found));
}

TEST_CASE("a kernel serves as a function, not the other way round") {
  worker::HandleTable table;
  const auto kernel = handle(wire::Kind::kernel, 0), function = handle(wire::Kind::function, 0);
  table.bind(wire::Kind::kernel, kernel, pointer(0x10));
  table.bind(wire::Kind::function, function, pointer(0x20));
  Opaque* found = nullptr;
  CHECK(table.find(wire::Kind::function, kernel, found));
  CHECK_FALSE(table.find(wire::Kind::kernel, function, found));
}

TEST_CASE("indices are bounded, so a client cannot make the table grow without end") {
  worker::HandleTable table;
  CHECK(table.vacant(wire::Kind::event, handle(wire::Kind::event, wire::max_handles - 1)));
  CHECK_FALSE(table.vacant(wire::Kind::event, handle(wire::Kind::event, wire::max_handles)));
  CHECK_FALSE(table.vacant(wire::Kind::event, handle(wire::Kind::stream, 1)));
  CHECK_FALSE(table.vacant(wire::Kind::event, 0));
}

TEST_CASE("an object of the driver has one name, until its handle is dropped") {
  worker::HandleTable table;
  const auto first = handle(wire::Kind::array, 0), second = handle(wire::Kind::array, 1);
  CHECK(table.name_or_bind(wire::Kind::array, first, pointer(0x10)) == first);
  CHECK(table.name_or_bind(wire::Kind::array, second, pointer(0x10)) == first);
  CHECK(table.vacant(wire::Kind::array, second));
  CHECK(table.name_or_bind(wire::Kind::array, second, pointer(0)) == 0);
  table.drop(wire::Kind::array, first);
  CHECK(table.name_of(wire::Kind::array, pointer(0x10)) == 0);
  CHECK(table.name_or_bind(wire::Kind::array, second, pointer(0x10)) == second);
}

TEST_CASE("what goes with a context is forgotten with it") {
  worker::HandleTable table;
  Opaque* const one = pointer(0x100);
  Opaque* const other = pointer(0x200);
  table.owned_by(one);
  table.bind(wire::Kind::array, handle(wire::Kind::array, 0), pointer(0x10));
  table.adopt(wire::Kind::texture_object, 77);
  table.owned_by(other);
  table.bind(wire::Kind::array, handle(wire::Kind::array, 1), pointer(0x20));
  table.adopt(wire::Kind::texture_object, 78);
  table.forget_owned_by(wire::Kind::array, one);
  table.forget_owned_by(wire::Kind::texture_object, one);
  Opaque* found = nullptr;
  CHECK_FALSE(table.find(wire::Kind::array, handle(wire::Kind::array, 0), found));
  CHECK(table.find(wire::Kind::array, handle(wire::Kind::array, 1), found));
  CHECK_FALSE(table.owns(wire::Kind::texture_object, 77));
  CHECK(table.owns(wire::Kind::texture_object, 78));
}

TEST_CASE("the handles of one context can be gone through") {
  worker::HandleTable table;
  Opaque* const one = pointer(0x100);
  Opaque* const other = pointer(0x200);
  for (std::uint32_t n = 0; n < 4; ++n) {
    table.owned_by(n % 2 == 0 ? one : other);
    table.bind(wire::Kind::stream, handle(wire::Kind::stream, n), pointer(0x10 + n));
  }
  std::vector<std::uint64_t> found;
  table.each_owned_by(wire::Kind::stream, other, [&](std::uint64_t value, void*) { found.push_back(value); });
  CHECK(found == std::vector{handle(wire::Kind::stream, 1), handle(wire::Kind::stream, 3)});
}
