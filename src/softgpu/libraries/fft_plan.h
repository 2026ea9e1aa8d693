// How lines of one length are transformed: what is computed once for a length and kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "libraries/operations/fft.h"
#include "softgpu/libraries/fft_stages.h"

namespace softgpu::libraries::fft {

/// Memory that is aligned for vectors and grows; what it held is lost then.
template <class T>
class Space {
 public:
  T* of(std::size_t count) {
    const std::size_t needed = count / per_block + 1;
    if (blocks_.size() < needed) {
      blocks_.clear();
      blocks_.resize(needed);
    }
    return reinterpret_cast<T*>(blocks_.data());
  }
  /// Gives it back where it is a lot.
  void trim() {
    constexpr std::size_t most = std::size_t{4} << 20;
    if (blocks_.size() * sizeof(Block) > most) blocks_ = {};
  }

 private:
  static constexpr std::size_t per_block = 64 / sizeof(T);
  struct alignas(64) Block {
    T values[per_block];
  };
  std::vector<Block> blocks_;
};

/// What a thread needs beside the numbers themselves.
template <class T>
struct Room {
  Space<T> padded, turned, group;

  void trim() {
    padded.trim();
    turned.trim();
    group.trim();
  }
};

/// e^(-2πi · index / n), to the last bit or nearly: pairs (cos, sin).
struct Root {
  double re, im;
};
Root root(std::uint64_t index, std::uint64_t n);

/// Factors e^(-2πi · line · k / n) for lines that lie together, k below `length`.
template <class T>
class Twiddles {
 public:
  Twiddles(std::uint64_t n, std::size_t length);
  /// Multiplies the numbers of the lines [line, line + lanes).
  void apply(T* re, T* im, std::uint64_t line) const { multiply(factors_, line, length_, re, im); }
  [[nodiscard]] std::size_t bytes() const { return (length_ * 2 * lanes<T> + shared_.size()) * sizeof(T); }

 private:
  Factors<T> factors_;
  std::size_t length_;
  Space<T> of_lanes_;
  std::vector<T> shared_;
};

template <class T>
class Plan {
 public:
  /// `grouped`: for groups of lines, however long they are.
  explicit Plan(std::size_t length, bool grouped = false);

  [[nodiscard]] std::size_t length() const { return length_; }
  /// Whether it is for lines that are computed one by one: several of them would not stay in the cache.
  [[nodiscard]] bool one_by_one() const { return one_by_one_; }
  /// `lanes<T>` lines, with the sign -1. Not of a plan for one by one.
  void group(Numbers<T>& numbers, Room<T>& room) const;
  /// One line, in place.
  void line(T* re, T* im, Room<T>& room) const;
  [[nodiscard]] std::size_t bytes() const;

 private:
  void make_stages(std::vector<std::size_t> factors);
  void make_split(const std::vector<std::size_t>& factors);
  void make_convolution();
  /// Bluestein's: a transform of any length as a convolution, made of transforms of a longer one.
  template <std::size_t width, class Transform>
  void convolve(T* re, T* im, T* padded_re, T* padded_im, Transform transform) const;

  std::size_t length_;
  bool one_by_one_;
  std::vector<Stage> stages_;
  std::vector<T> table_;
  // Of a long line: its numbers as a matrix, whose columns are transformed, then its rows.
  std::unique_ptr<const Plan> columns_, rows_;
  std::unique_ptr<const Twiddles<T>> between_;
  // Of a length with a large prime factor.
  std::unique_ptr<const Plan> longer_;
  std::vector<T> chirp_, spectrum_;
};

/// What an operation needs of its length: kept for the next.
template <class T>
struct Prepared {
  Prepared(const gpupool::operations::Fft& operation);

  Plan<T> plan;  // of half the length where real numbers are taken in pairs
  std::unique_ptr<const Twiddles<T>> twiddles;
  std::vector<T> half_roots;  // e^(-2πi k / length), of pairs of real numbers
};
template <class T>
std::shared_ptr<const Prepared<T>> prepared(const gpupool::operations::Fft& operation);

}  // namespace softgpu::libraries::fft
