#include "softgpu/exec/run/texture_view.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <vector>

using softgpu::TextureView;

namespace {

float read(const TextureView& view, std::vector<float> at, uint32_t channel = 0) {
  uint32_t result[4];
  at.resize(3);
  softgpu::sample(view, 1, false, at.data(), 0, result);
  return std::bit_cast<float>(result[channel]);
}

struct Line {
  std::vector<float> values{10, 20, 30, 40};
  TextureView view;
  Line() {
    view.address = reinterpret_cast<uint64_t>(values.data());
    view.width = 4;
    view.pitch = 16;
  }
};

}  // namespace

TEST_CASE("without a filter a coordinate reads the element it lies in") {
  Line line;
  CHECK(read(line.view, {0.0F}) == 10);
  CHECK(read(line.view, {1.99F}) == 20);
  line.view.normalized_coordinates = true;
  CHECK(read(line.view, {0.5F}) == 30);
}

TEST_CASE("beyond an edge the mode decides") {
  Line line;
  line.view.edge[0] = TextureView::Edge::clamp;
  CHECK(read(line.view, {-3.0F}) == 10);
  CHECK(read(line.view, {9.0F}) == 40);
  line.view.edge[0] = TextureView::Edge::border;
  line.view.border[0] = 7;
  CHECK(read(line.view, {-0.1F}) == 7);
  line.view.normalized_coordinates = true;
  line.view.edge[0] = TextureView::Edge::wrap;
  CHECK(read(line.view, {1.25F}) == 20);
  CHECK(read(line.view, {-0.25F}) == 40);
  line.view.edge[0] = TextureView::Edge::mirror;
  CHECK(read(line.view, {1.1F}) == 40);
  CHECK(read(line.view, {-0.3F}) == 20);
}

TEST_CASE("the linear filter weighs neighbours by distance of centres") {
  Line line;
  line.view.linear_filter = true;
  line.view.edge[0] = TextureView::Edge::clamp;
  CHECK(read(line.view, {0.5F}) == 10);
  CHECK(read(line.view, {1.0F}) == 15);
  CHECK(read(line.view, {1.25F}) == 17.5F);
  CHECK(read(line.view, {0.0F}) == 10);
}

TEST_CASE("small integers are read as fractions or as they are, and missing channels are 0, 0, 1") {
  std::vector<uint8_t> bytes{255, 51};
  TextureView view;
  view.address = reinterpret_cast<uint64_t>(bytes.data());
  view.channel = TextureView::Channel::unsigned8;
  view.width = 2;
  CHECK(read(view, {1.0F}) == doctest::Approx(0.2));
  CHECK(read(view, {1.0F}, 1) == 0);
  CHECK(read(view, {1.0F}, 3) == 1);
  view.integers = true;
  uint32_t result[4];
  const int32_t at[1] = {1};
  softgpu::fetch(view, 1, false, at, 0, result);
  CHECK(result[0] == 51);
  CHECK(result[3] == 1);
  view.linear_memory = true;
  const int32_t beyond[1] = {2};
  softgpu::fetch(view, 1, false, beyond, 0, result);
  CHECK(result[0] == 0);
}

TEST_CASE("odd coordinates do not leave the texture") {
  Line line;
  for (const float odd : {INFINITY, -INFINITY, NAN, 1e30F}) {
    for (const bool filters : {false, true}) {
      line.view.linear_filter = filters;
      line.view.edge[0] = TextureView::Edge::clamp;
      const float value = read(line.view, {odd});
      CHECK((value == 10 || value == 40));
    }
  }
}
