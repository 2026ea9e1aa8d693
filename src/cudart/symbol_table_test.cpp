#include "cudart/symbol_table.h"

#include <doctest/doctest.h>

#include <thread>

using gpupool::cudart::SymbolTable;

TEST_CASE("what was put is found, what was taken away is not") {
  SymbolTable<int> table;
  static char keys[5000];
  int values[2] = {1, 2};
  CHECK(table.find(&keys[0]) == nullptr);
  CHECK(table.find(nullptr) == nullptr);
  for (char& key : keys) table.put(&key, &values[0]);
  table.put(&keys[7], &values[1]);
  table.put(&keys[8], nullptr);
  CHECK(table.find(&keys[7]) == &values[1]);
  CHECK(table.find(&keys[8]) == nullptr);
  for (std::size_t n = 9; n < sizeof(keys); ++n) REQUIRE(table.find(&keys[n]) == &values[0]);
  table.put(&keys[8], &values[1]);
  CHECK(table.find(&keys[8]) == &values[1]);
}

TEST_CASE("readers find an entry however much is added meanwhile") {
  SymbolTable<int> table;
  static char keys[200000];
  int value = 1;
  table.put(&keys[0], &value);
  std::atomic<bool> done{false};
  bool always = true;
  std::thread reader([&] {
    while (!done) always = always && table.find(&keys[0]) == &value;
  });
  for (char& key : keys) table.put(&key, &value);
  done = true;
  reader.join();
  CHECK(always);
}
