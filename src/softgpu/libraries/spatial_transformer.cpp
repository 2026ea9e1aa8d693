// Spatial transformers. A part has some points of grids, some planes of an image's gradient, or the gradient
// of one map.
#include "libraries/operations/spatial_transformer.h"

#include <cmath>
#include <type_traits>
#include <vector>

#include "softgpu/libraries/elements.h"
#include "softgpu/libraries/operations.h"
#include "softgpu/libraries/tensors.h"

namespace softgpu::libraries {
namespace {

using gpupool::operations::SpatialTransformer;
using gpupool::operations::Transforming;

constexpr int map_size = 6;  // of an image: two rows of three

void check_transformer(const SpatialTransformer& op, const Memory& memory) {
  const std::size_t bytes = bytes_of(op.type);
  const auto images = static_cast<std::uint64_t>(op.images),
             coordinates = images * static_cast<std::uint64_t>(op.points()) * 2;
  memory.check(op.grid, coordinates, bytes, "the grid");
  if (!op.reads_images()) return memory.check(op.theta, images * map_size, bytes, "the maps");
  check_tensor(op.x, memory, "the input");
  if (op.what == Transforming::sample) return check_written(op.y, memory, "the output");
  check_tensor(op.y, memory, "the gradient of the output");
  check_written(op.dx, memory, "the gradient of the input");
  check_same_sizes(op.dx, op.x, "the gradient of the input");
  memory.check(op.grid_gradient, coordinates, bytes, "the gradient of the grid");
  // A plane of the gradient lies in host memory.
  check_room(op.x.sizes[2] * op.x.sizes[3], "a plane of a spatial transformer");
}

/// A point of a grid. Coordinates have the precision of the elements, as a GPU computes them: they decide
/// between which elements the point is.
struct Point {
  std::int64_t left = 0, above = 0;  // the corner of four elements, some of which may be outside
  double across = 0, down = 0;       // how far from it
  bool outside = true;               // all of them are
};

/// An image's plane, or the whole tensor where there are several channels, by element.
template <class T>
class Plane {
 public:
  Plane(const Tensor& tensor, std::int64_t image, std::int64_t channel)
      : from_(reinterpret_cast<T*>(tensor.address) + image * tensor.strides[0] + channel * tensor.strides[1]),
        row_(tensor.strides[2]),
        column_(tensor.strides[3]) {}
  [[nodiscard]] T& at(std::int64_t y, std::int64_t x) const { return from_[y * row_ + x * column_]; }
  [[nodiscard]] double number(std::int64_t y, std::int64_t x) const { return to_number<double>(at(y, x)); }

 private:
  T* from_;
  std::int64_t row_, column_;
};

/// value = alpha · made + beta · value; what is there is not read where beta is 0.
template <class T>
void put_scaled(T& value, double made, double alpha, double beta) {
  made *= alpha;
  if (beta != 0) made += beta * to_number<double>(value);
  value = to_element<T>(made);
}

template <class T>
class Transformed {
 public:
  explicit Transformed(const SpatialTransformer& op)
      : op_(op),
        grid_(reinterpret_cast<T*>(op.grid)),
        theta_(reinterpret_cast<T*>(op.theta)),
        height_(op.x.sizes[2]),
        width_(op.x.sizes[3]) {}

  void part(std::uint64_t number) {
    const auto index = static_cast<std::int64_t>(number);
    if (op_.what == Transforming::grid_gradient) return map_gradient(index);
    if (op_.what != Transforming::sample_gradient) return points(index);
    const std::int64_t planes = op_.parts_of_planes();
    if (index >= planes) return points(index - planes);
    const std::int64_t all = op_.images * op_.x.sizes[1], from = index * op_.planes_at_once();
    for (std::int64_t plane = from; plane < std::min(from + op_.planes_at_once(), all); ++plane)
      plane_gradient(plane / op_.x.sizes[1], plane % op_.x.sizes[1]);
  }

 private:
  /// Of coordinates.
  using N = std::conditional_t<std::is_same_v<T, double>, double, float>;

  void points(std::int64_t part) const {
    const std::int64_t from = part * op_.points_at_once();
    const std::int64_t to = std::min(from + op_.points_at_once(), op_.images * op_.points());
    for (std::int64_t point = from; point < to; ++point) {
      if (op_.what == Transforming::grid) {
        map(point);
      } else if (op_.what == Transforming::sample) {
        read(point);
      } else {
        point_gradient(point);
      }
    }
  }

  /// From -1 to 1. Of a single one, -1.
  static double coordinate(std::int64_t index, std::int64_t count) {
    return count == 1 ? -1 : -1 + 2 * static_cast<double>(index) / static_cast<double>(count - 1);
  }
  void map(std::int64_t point) const {
    const T* const theta = theta_ + point / op_.points() * map_size;
    const double x = coordinate(point % op_.width, op_.width),
                 y = coordinate(point % op_.points() / op_.width, op_.height);
    for (int i = 0; i < 2; ++i) {
      const auto of = [&](int column) { return to_number<double>(theta[3 * i + column]); };
      grid_[2 * point + i] = to_element<T>(of(0) * x + of(1) * y + of(2));
    }
  }
  void map_gradient(std::int64_t image) const {
    double sums[map_size] = {};
    const T* gradient = grid_ + 2 * image * op_.points();
    for (std::int64_t row = 0; row < op_.height; ++row) {
      for (std::int64_t column = 0; column < op_.width; ++column, gradient += 2) {
        const double by[3] = {coordinate(column, op_.width), coordinate(row, op_.height), 1};
        for (int i = 0; i < map_size; ++i) sums[i] += to_number<double>(gradient[i / 3]) * by[i % 3];
      }
    }
    for (int i = 0; i < map_size; ++i) theta_[map_size * image + i] = to_element<T>(sums[i]);
  }

  [[nodiscard]] Point find(std::int64_t point) const {
    const auto place = [](T coordinate, std::int64_t size) {
      return (to_number<N>(coordinate) + N(1)) * static_cast<N>(size - 1) / N(2);
    };
    const N x = place(grid_[2 * point], width_), y = place(grid_[2 * point + 1], height_);
    // What is no number is nowhere.
    if (!(x >= N(-1) && x < static_cast<N>(width_) && y >= N(-1) && y < static_cast<N>(height_))) return {};
    const N left = std::floor(x), above = std::floor(y);
    return {static_cast<std::int64_t>(left), static_cast<std::int64_t>(above), static_cast<double>(x - left),
            static_cast<double>(y - above), false};
  }
  /// f(y, x, right, below) for the elements around a point that are not outside.
  template <class F>
  void each_corner(const Point& at, F f) const {
    for (int corner = 0; corner < 4; ++corner) {
      const bool right = corner % 2 == 1, below = corner >= 2;
      const std::int64_t y = at.above + (below ? 1 : 0), x = at.left + (right ? 1 : 0);
      if (y >= 0 && y < height_ && x >= 0 && x < width_) f(y, x, right, below);
    }
  }
  static double share(double distance, bool further) { return further ? distance : 1 - distance; }

  void read(std::int64_t point) const {
    const Point at = find(point);
    const std::int64_t image = point / op_.points(), row = point % op_.points() / op_.width;
    for (std::int64_t channel = 0; channel < op_.x.sizes[1]; ++channel) {
      double sum = 0;
      const Plane<const T> x(op_.x, image, channel);
      if (!at.outside) {
        each_corner(at, [&](std::int64_t i, std::int64_t j, bool right, bool below) {
          sum += x.number(i, j) * share(at.across, right) * share(at.down, below);
        });
      }
      put_scaled(Plane<T>(op_.y, image, channel).at(row, point % op_.width), sum, op_.alpha, op_.beta);
    }
  }
  void point_gradient(std::int64_t point) const {
    const Point at = find(point);
    const std::int64_t image = point / op_.points(), row = point % op_.points() / op_.width;
    double across = 0, down = 0;
    for (std::int64_t channel = 0; channel < op_.x.sizes[1] && !at.outside; ++channel) {
      const double dy = Plane<const T>(op_.y, image, channel).number(row, point % op_.width);
      const Plane<const T> x(op_.x, image, channel);
      each_corner(at, [&](std::int64_t i, std::int64_t j, bool right, bool below) {
        const double value = x.number(i, j) * dy;
        across += (right ? value : -value) * share(at.down, below);
        down += (below ? value : -value) * share(at.across, right);
      });
    }
    T* const gradient = reinterpret_cast<T*>(op_.grid_gradient) + 2 * point;
    // A coordinate's step of 2 is all elements but one.
    const double columns = static_cast<double>(width_ - 1) / 2, rows = static_cast<double>(height_ - 1) / 2;
    put_scaled(gradient[0], across * columns, op_.grid_alpha, op_.grid_beta);
    put_scaled(gradient[1], down * rows, op_.grid_alpha, op_.grid_beta);
  }
  /// Each element's gradient from all points around it, always in the same order.
  void plane_gradient(std::int64_t image, std::int64_t channel) {
    sums_.assign(static_cast<std::size_t>(height_ * width_), 0);
    const Plane<const T> dy(op_.y, image, channel);
    for (std::int64_t point = 0; point < op_.points(); ++point) {
      const Point at = find(image * op_.points() + point);
      if (at.outside) continue;
      const double value = dy.number(point / op_.width, point % op_.width);
      each_corner(at, [&](std::int64_t i, std::int64_t j, bool right, bool below) {
        sums_[static_cast<std::size_t>(i * width_ + j)] +=
            value * share(at.across, right) * share(at.down, below);
      });
    }
    const Plane<T> dx(op_.dx, image, channel);
    for (std::int64_t i = 0; i < height_; ++i) {
      for (std::int64_t j = 0; j < width_; ++j)
        put_scaled(dx.at(i, j), sums_[static_cast<std::size_t>(i * width_ + j)], op_.alpha, op_.beta);
    }
  }

  const SpatialTransformer& op_;
  T *const grid_, *const theta_;
  const std::int64_t height_, width_;  // of what is read
  std::vector<double> sums_;
};

}  // namespace

void run(const SpatialTransformer& op, const Parts& parts, const Memory& memory) {
  check_transformer(op, memory);
  with_type(op.type, [&](auto type) {
    using T = decltype(type);
    // A sound operation has none of the other types.
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, Half>) {
      Transformed<T> transformed(op);
      parts.each(op.parts(), [&](std::uint64_t part) { transformed.part(part); });
    }
  });
}

}  // namespace softgpu::libraries
