#include "softgpu/driver/described/visible_cards.h"

#include <doctest/doctest.h>

#include "softgpu/driver/described/card_identity.h"

using softgpu::driver::uuid_digits_of_card;
using softgpu::driver::visible_cards;
using Cards = std::vector<int>;

TEST_CASE("CUDA_VISIBLE_DEVICES chooses cards and their order") {
  CHECK_EQ(visible_cards("0", 4), Cards{0});
  CHECK_EQ(visible_cards("2,0", 4), Cards{2, 0});
  CHECK_EQ(visible_cards(" 1 , 3 ", 4), Cards{1, 3});
}

TEST_CASE("the list ends before what names no card") {
  CHECK_EQ(visible_cards("", 4), Cards{});
  CHECK_EQ(visible_cards("-1", 4), Cards{});
  CHECK_EQ(visible_cards("NoDevFiles", 4), Cards{});
  CHECK_EQ(visible_cards("0,4,1", 4), Cards{0});
  CHECK_EQ(visible_cards("1,-1,0", 4), Cards{1});
  CHECK_EQ(visible_cards("1,0x,0", 4), Cards{1});
  CHECK_EQ(visible_cards("1,1,0", 4), Cards{1});
  CHECK_EQ(visible_cards("1,", 4), Cards{1});
  CHECK_EQ(visible_cards("99999999999999999999", 4), Cards{});
}

TEST_CASE("a card can be named by its UUID, or by as much of it as is its own") {
  const std::string third = uuid_digits_of_card(3);
  CHECK_EQ(third.size(), 32);
  const std::string grouped = third.substr(0, 8) + '-' + third.substr(8, 4) + '-' + third.substr(12, 4) +
                              '-' + third.substr(16, 4) + '-' + third.substr(20);
  CHECK_EQ(visible_cards("GPU-" + grouped + ",0", 4), Cards{3, 0});
  CHECK_EQ(visible_cards("GPU-" + third.substr(0, 8), 4), Cards{});  // all begin so
  CHECK_EQ(visible_cards("GPU-" + third.substr(0, 8), 1), Cards{0});
  CHECK_EQ(visible_cards("GPU-", 1), Cards{});
}
