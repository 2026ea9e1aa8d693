// Spatial transformers of two dimensions: grids of affine maps, and images that are read where a grid says.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libraries/operations/tensor.h"

namespace gpupool::operations {

/// What is made: a grid of maps, the gradient of the maps, an image of what is read, or gradients of what was
/// read and of where.
enum class Transforming : std::uint8_t { grid = 0, grid_gradient = 1, sample = 2, sample_gradient = 3 };

/// A grid has for each image, row and column two coordinates, across and down: -1 is the centre of the first
/// element of x, 1 that of the last one. Outside of x everything is zero.
///
/// sample: y = alpha · x at the grid + beta · y. sample_gradient: dx = alpha · the gradient + beta · dx, and
/// the grid's gradient in the same way with its own factors.
struct SpatialTransformer {
  static constexpr const char* name = "cudnn_spatial_transformer";
  static constexpr int dims = 4;

  Tensor x, y, dx;                            // `y` of a gradient is y's gradient
  std::uint64_t grid = 0, grid_gradient = 0;  // of images, rows, columns and two coordinates, without gaps
  std::uint64_t theta = 0;                    // of each image a map of 2 × 3, or its gradient
  std::int64_t images = 0, height = 0, width = 0;  // of the grid
  double alpha = 1, beta = 0, grid_alpha = 1, grid_beta = 0;
  Element type = Element::f32;  // of all
  Transforming what = Transforming::grid;
  std::uint8_t reserved[6] = {};

  [[nodiscard]] bool reads_images() const { return what >= Transforming::sample; }
  [[nodiscard]] bool sound() const {
    if (type != Element::f32 && type != Element::f64 && type != Element::f16) return false;
    if (what > Transforming::sample_gradient || images < 1 || height < 1 || width < 1) return false;
    if (!are_sizes({images, height, width}) || height > max_size / width || images > max_size / points())
      return false;
    if (!reads_images()) return true;
    for (const Tensor* const tensor : {&x, &y, &dx}) {
      if (!tensor->sound() || tensor->type != type || tensor->dims != dims) return false;
      if (tensor->sizes[0] != images || tensor->sizes[1] != x.sizes[1]) return false;
    }
    return y.sizes[2] == height && y.sizes[3] == width;
  }

  /// Of one image's grid.
  [[nodiscard]] std::int64_t points() const { return height * width; }
  /// Points of one part, where each is for itself.
  [[nodiscard]] std::int64_t points_at_once() const {
    return reads_images() ? std::max<std::int64_t>(elements_at_a_time / x.sizes[1], 1) : elements_at_a_time;
  }
  [[nodiscard]] std::int64_t parts_of_points() const {
    const std::int64_t block = points_at_once();
    return (images * points() + block - 1) / block;
  }
  /// Planes of one part of dx: a channel of an image each, to which all points of the grid add something.
  [[nodiscard]] std::int64_t planes_at_once() const {
    return std::max<std::int64_t>(elements_at_a_time / std::max(points(), x.sizes[2] * x.sizes[3]), 1);
  }
  [[nodiscard]] std::int64_t parts_of_planes() const {
    const std::int64_t block = planes_at_once();
    return (images * x.sizes[1] + block - 1) / block;
  }
  [[nodiscard]] std::uint64_t parts() const {
    switch (what) {
      case Transforming::grid:
      case Transforming::sample:
        break;
      case Transforming::grid_gradient:
        return static_cast<std::uint64_t>(images);
      case Transforming::sample_gradient:
        return static_cast<std::uint64_t>(parts_of_planes() + parts_of_points());
    }
    return static_cast<std::uint64_t>(parts_of_points());
  }

 private:
  static constexpr std::int64_t elements_at_a_time = 1 << 14;
};

}  // namespace gpupool::operations
