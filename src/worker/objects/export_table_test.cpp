#include "worker/objects/export_table.h"

#include <doctest/doctest.h>

#include <cstring>

using namespace gpupool;
using worker::Export;
using worker::ExportTable;

namespace {

Export event(std::uint64_t handle) {
  Export made;
  made.kind = ExportKind::event;
  made.event = handle;
  return made;
}

constexpr std::array<std::uint8_t, 16> office{1, 2, 3};

}  // namespace

TEST_CASE("the same object has the same ticket, another one another") {
  ExportTable table(office);
  const auto first = table.add(event(7));
  REQUIRE(first);
  CHECK(first->secret == table.add(event(7))->secret);
  CHECK(first->secret != table.add(event(8))->secret);
  REQUIRE(table.find(*first));
  CHECK(table.find(*first)->event == 7);
  CHECK(table.is_own(*first));
}

TEST_CASE("who changes a bit of a ticket has none") {
  ExportTable table(office);
  const auto ticket = table.add(event(7));
  REQUIRE(ticket);
  int opened = 0;
  for (std::size_t bit = 0; bit < 8 * ExportTicket::bytes; ++bit) {
    std::array<std::byte, ExportTicket::bytes> bytes{};
    std::memcpy(bytes.data(), &*ticket, bytes.size());
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const auto read = ExportTicket::read(bytes);
    if (read && table.find(*read)) ++opened;
  }
  CHECK(opened == 0);
  CHECK_FALSE(ExportTicket::read(std::span(reinterpret_cast<const std::byte*>(&*ticket), 63)));
}

TEST_CASE("a ticket is worth nothing once its object has ended") {
  ExportTable table(office);
  const auto seven = table.add(event(7)), eight = table.add(event(8));
  REQUIRE((seven && eight));
  table.end_event(7);
  CHECK_FALSE(table.find(*seven));
  CHECK(table.find(*eight));
  CHECK(table.add(event(7))->secret != seven->secret);
  table.clear();
  CHECK_FALSE(table.find(*eight));
}

TEST_CASE("a session gives out no more than a bounded number of tickets") {
  ExportTable table(office);
  Export pool;
  pool.kind = ExportKind::pool;
  std::size_t given = 0;
  // The search for an equal object is linear: a few thousand are enough to see that nothing is lost.
  for (pool.pool = 0; pool.pool < 2000; ++pool.pool) given += table.add(pool) ? 1 : 0;
  CHECK(given == 2000);
  table.end_pool(5);
  pool.pool = 5;
  CHECK(table.add(pool));
}
