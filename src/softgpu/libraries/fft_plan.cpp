#include "softgpu/libraries/fft_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <numbers>
#include <tuple>

namespace softgpu::libraries::fft {
namespace {

using gpupool::operations::Fft;
using gpupool::operations::FftKind;

/// Numbers of a group of lines that long, and as many to work with, take a quarter of a megabyte.
constexpr std::size_t longest_in_groups = 2048;

/// Prime factors in rising order, then fours and eights in place of twos; none: one is too large for a stage.
std::vector<std::size_t> factors_of(std::size_t n) {
  std::vector<std::size_t> factors;
  std::size_t twos = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  for (std::size_t factor = 3; factor <= max_radix; factor += 2) {
    for (; n % factor == 0; n /= factor) factors.push_back(factor);
  }
  if (n != 1) return {};
  // Fours do best; what is left of an odd number of twos goes into an eight, which reads memory less often.
  if (twos % 2 == 1) {
    factors.push_back(twos == 1 ? 2 : 8);
    twos -= twos == 1 ? 1 : 3;
  }
  factors.insert(factors.end(), twos / 2, 4);
  return factors;
}

template <class T>
void add(std::vector<T>& table, const Root& value) {
  table.push_back(static_cast<T>(value.re));
  table.push_back(static_cast<T>(value.im));
}

template <class T>
void rotate(T& re, T& im, T by_re, T by_im) {
  const T old = re;
  re = old * by_re - im * by_im;
  im = old * by_im + im * by_re;
}

/// All lanes of a group, or those that it has.
template <class T>
void copy_lanes(const T* from, T* to, std::size_t count) {
  if (count == lanes<T>) {
    std::memcpy(to, from, sizeof(T) * lanes<T>);
  } else {
    std::copy(from, from + count, to);
  }
}

}  // namespace

Root root(std::uint64_t index, std::uint64_t n) {
  index %= n;
  // The angle is brought below an eighth of a turn in whole numbers: there sine and cosine are exact.
  const std::uint64_t eighth = 8 * index / n;
  const auto angle = [n](std::uint64_t part) {
    return 2 * std::numbers::pi * (static_cast<double>(part) / static_cast<double>(n));
  };
  const auto quarter = [n](std::uint64_t quarters, std::uint64_t i) {  // quarters · n / 4 - i, of angles
    return 2 * std::numbers::pi * (static_cast<double>(quarters * n) - 4 * static_cast<double>(i)) /
           (4 * static_cast<double>(n));
  };
  switch (eighth) {
    case 0:
      return {std::cos(angle(index)), -std::sin(angle(index))};
    case 1:
    case 2: {
      const double rest = quarter(1, index);  // π/2 - angle
      return {std::sin(rest), -std::cos(rest)};
    }
    case 3:
    case 4: {
      const double rest = quarter(2, index);  // π - angle
      return {-std::cos(rest), -std::sin(rest)};
    }
    case 5:
    case 6: {
      const double rest = quarter(3, index);  // 3π/2 - angle
      return {-std::sin(rest), std::cos(rest)};
    }
    default:
      return {std::cos(angle(n - index)), std::sin(angle(n - index))};
  }
}

template <class T>
Twiddles<T>::Twiddles(std::uint64_t n, std::size_t length) : factors_{}, length_(length) {
  std::uint64_t fine = 1;
  while (fine * fine < n) fine *= 2;
  for (std::uint64_t i = 0; i < fine; ++i) add(shared_, root(i, n));
  for (std::uint64_t i = 0; i < n; i += fine) add(shared_, root(i, n));
  T* const of_lanes = of_lanes_.of(length * 2 * lanes<T>);
  for (std::size_t k = 0; k < length; ++k) {
    for (std::size_t lane = 0; lane < lanes<T>; ++lane) {
      const Root value = root(k % n * lane, n);
      of_lanes[k * 2 * lanes<T> + lane] = static_cast<T>(value.re);
      of_lanes[(k * 2 + 1) * lanes<T> + lane] = static_cast<T>(value.im);
    }
  }
  factors_ = {n, fine, shared_.data() + 2 * fine, shared_.data(), of_lanes};
}

template <class T>
Plan<T>::Plan(std::size_t length, bool grouped)
    : length_(length), one_by_one_(!grouped && length > longest_in_groups) {
  if (length == 1) return;
  const std::vector<std::size_t> factors = factors_of(length);
  if (factors.empty()) {
    make_convolution();
  } else if (one_by_one_) {
    make_split(factors);
  } else {
    make_stages(factors);
  }
}

template <class T>
void Plan<T>::make_stages(std::vector<std::size_t> factors) {
  std::size_t left = length_, stride = 1;
  for (const std::size_t radix : factors) {
    const std::size_t groups = left / radix;
    Stage stage{radix, groups, stride, 0, table_.size()};
    if (radix % 2 == 1) {
      for (std::size_t j = 0; j < radix; ++j) add(table_, root(j, radix));
    }
    stage.twiddles = table_.size();
    for (std::size_t p = 0; p < groups; ++p) {
      for (std::size_t j = 1; j < radix; ++j) add(table_, root(p * j, left));
    }
    stages_.push_back(stage);
    left = groups;
    stride *= radix;
  }
}

template <class T>
void Plan<T>::make_split(const std::vector<std::size_t>& factors) {
  // The divisor that is nearest to the root.
  std::size_t best = 1;
  const std::size_t choices = std::size_t{1} << std::min<std::size_t>(factors.size(), 16);
  for (std::size_t choice = 0; choice < choices; ++choice) {
    std::size_t product = 1;
    for (std::size_t i = 0; i < factors.size(); ++i) {
      if ((choice >> std::min<std::size_t>(i, 63) & 1) != 0) product *= factors[i];
    }
    if (product <= length_ / product && product > best) best = product;
  }
  columns_ = std::make_unique<const Plan>(best, true);
  rows_ = std::make_unique<const Plan>(length_ / best, true);
  between_ = std::make_unique<const Twiddles<T>>(length_, best);
}

template <class T>
void Plan<T>::make_convolution() {
  std::size_t longer = 1;
  while (longer < 2 * length_ - 1) longer *= 2;
  longer_ = std::make_unique<const Plan>(longer, !one_by_one_);
  const std::uint64_t turn = 2 * static_cast<std::uint64_t>(length_);
  std::vector<double> re(longer), im(longer);
  std::uint64_t square = 0;  // k² mod 2n
  for (std::size_t k = 0; k < length_; ++k) {
    const Root value = root(square, turn);
    add(chirp_, value);
    re[k] = re[(longer - k) % longer] = value.re;
    im[k] = im[(longer - k) % longer] = -value.im;
    square = (square + 2 * k + 1) % turn;
  }
  Room<double> room;
  Plan<double>(longer).line(re.data(), im.data(), room);
  for (std::size_t k = 0; k < longer; ++k)
    add(spectrum_, {re[k] / static_cast<double>(longer), im[k] / static_cast<double>(longer)});
}

template <class T>
template <std::size_t width, class Transform>
void Plan<T>::convolve(T* re, T* im, T* padded_re, T* padded_im, Transform transform) const {
  const std::size_t longer = longer_->length();
  for (std::size_t k = 0; k < length_; ++k) {
    for (std::size_t i = k * width; i < (k + 1) * width; ++i) {
      padded_re[i] = re[i];
      padded_im[i] = im[i];
      rotate(padded_re[i], padded_im[i], chirp_[2 * k], chirp_[2 * k + 1]);
    }
  }
  std::fill(padded_re + length_ * width, padded_re + longer * width, T(0));
  std::fill(padded_im + length_ * width, padded_im + longer * width, T(0));
  transform(padded_re, padded_im);
  for (std::size_t k = 0; k < longer; ++k) {
    for (std::size_t i = k * width; i < (k + 1) * width; ++i)
      rotate(padded_re[i], padded_im[i], spectrum_[2 * k], spectrum_[2 * k + 1]);
  }
  transform(padded_im, padded_re);  // the other sign
  for (std::size_t k = 0; k < length_; ++k) {
    for (std::size_t i = k * width; i < (k + 1) * width; ++i) {
      re[i] = padded_re[i];
      im[i] = padded_im[i];
      rotate(re[i], im[i], chirp_[2 * k], chirp_[2 * k + 1]);
    }
  }
}

template <class T>
void Plan<T>::group(Numbers<T>& numbers, Room<T>& room) const {
  if (length_ == 1) return;
  if (longer_ == nullptr) return transform(stages_.data(), stages_.size(), table_.data(), numbers);
  const std::size_t size = longer_->length() * lanes<T>;
  T* const space = room.padded.of(4 * size);
  Numbers<T> padded{space, space + size, space + 2 * size, space + 3 * size};
  convolve<lanes<T>>(numbers.re, numbers.im, padded.re, padded.im, [&](T*& re, T*& im) {
    Numbers<T> now{re, im, padded.other_re, padded.other_im};
    longer_->group(now, room);
    re = now.re;
    im = now.im;
    padded.other_re = now.other_re;
    padded.other_im = now.other_im;
  });
}

template <class T>
void Plan<T>::line(T* re, T* im, Room<T>& room) const {
  constexpr std::size_t width = lanes<T>;
  if (length_ == 1) return;
  if (longer_ != nullptr) {
    const std::size_t size = (longer_->length() + 7) / 8 * 8;
    T* const space = room.padded.of(2 * size);
    T *padded_re = space, *padded_im = space + size;
    convolve<1>(re, im, padded_re, padded_im, [&](T* r, T* i) { longer_->line(r, i, room); });
    return;
  }
  const auto in_group = [&](std::size_t n) {
    T* const space = room.group.of(4 * n * width);
    return Numbers<T>{space, space + n * width, space + 2 * n * width, space + 3 * n * width};
  };
  if (columns_ == nullptr) {
    Numbers<T> numbers = in_group(length_);
    std::fill(numbers.re, numbers.re + 2 * length_ * width, T(0));
    for (std::size_t i = 0; i < length_; ++i) {
      numbers.re[i * width] = re[i];
      numbers.im[i * width] = im[i];
    }
    group(numbers, room);
    for (std::size_t i = 0; i < length_; ++i) {
      re[i] = numbers.re[i * width];
      im[i] = numbers.im[i * width];
    }
    return;
  }
  const std::size_t height = columns_->length(), breadth = rows_->length();
  T *const turned_re = room.turned.of(2 * length_ + 8), *const turned_im = turned_re + length_;
  for (std::size_t column = 0; column < breadth; column += width) {
    const std::size_t count = std::min(width, breadth - column);
    Numbers<T> numbers = in_group(height);
    for (std::size_t j = 0; j < height; ++j) {
      copy_lanes(re + j * breadth + column, numbers.re + j * width, count);
      copy_lanes(im + j * breadth + column, numbers.im + j * width, count);
    }
    columns_->group(numbers, room);
    between_->apply(numbers.re, numbers.im, column);
    for (std::size_t k = 0; k < height; ++k) {
      copy_lanes(numbers.re + k * width, turned_re + k * breadth + column, count);
      copy_lanes(numbers.im + k * width, turned_im + k * breadth + column, count);
    }
  }
  for (std::size_t row = 0; row < height; row += width) {
    const std::size_t count = std::min(width, height - row);
    Numbers<T> numbers = in_group(breadth);
    if (count == width) {
      turn(turned_re + row * breadth, breadth, breadth, numbers.re);
      turn(turned_im + row * breadth, breadth, breadth, numbers.im);
    } else {
      for (std::size_t lane = 0; lane < count; ++lane) {
        for (std::size_t j = 0; j < breadth; ++j) {
          numbers.re[j * width + lane] = turned_re[(row + lane) * breadth + j];
          numbers.im[j * width + lane] = turned_im[(row + lane) * breadth + j];
        }
      }
    }
    rows_->group(numbers, room);
    for (std::size_t k = 0; k < breadth; ++k) {
      copy_lanes(numbers.re + k * width, re + k * height + row, count);
      copy_lanes(numbers.im + k * width, im + k * height + row, count);
    }
  }
}

template <class T>
std::size_t Plan<T>::bytes() const {
  return (table_.size() + chirp_.size() + spectrum_.size()) * sizeof(T) +
         (columns_ != nullptr ? columns_->bytes() + rows_->bytes() + between_->bytes() : 0) +
         (longer_ != nullptr ? longer_->bytes() : 0);
}

namespace {

bool in_pairs(const Fft& operation) {
  return operation.kind != FftKind::complex && operation.length % 2 == 0;
}

}  // namespace

template <class T>
Prepared<T>::Prepared(const Fft& operation)
    : plan(static_cast<std::size_t>(in_pairs(operation) ? operation.length / 2 : operation.length)) {
  if (operation.twiddle != 0) {
    twiddles = std::make_unique<const Twiddles<T>>(static_cast<std::uint64_t>(operation.twiddle),
                                                   static_cast<std::size_t>(operation.length));
  }
  if (!in_pairs(operation)) return;
  const auto length = static_cast<std::uint64_t>(operation.length);
  for (std::uint64_t k = 0; k <= length / 4; ++k) add(half_roots, root(k, length));
}

template <class T>
std::shared_ptr<const Prepared<T>> prepared(const Fft& operation) {
  using Key = std::tuple<std::int64_t, std::int64_t, bool>;
  struct Kept {
    std::mutex mutex;
    std::map<Key, std::shared_ptr<const Prepared<T>>> all;
    std::size_t bytes = 0;
  };
  static Kept* const kept = new Kept;  // never destroyed: a thread may compute until the process is gone
  constexpr std::size_t most_bytes = std::size_t{64} << 20;
  const Key key{operation.length, operation.twiddle, in_pairs(operation)};
  const std::lock_guard lock(kept->mutex);
  if (const auto found = kept->all.find(key); found != kept->all.end()) return found->second;
  auto made = std::make_shared<const Prepared<T>>(operation);
  const std::size_t bytes = made->plan.bytes() + made->half_roots.size() * sizeof(T) +
                            (made->twiddles != nullptr ? made->twiddles->bytes() : 0);
  if (kept->bytes + bytes > most_bytes) {
    kept->all.clear();
    kept->bytes = 0;
  }
  kept->bytes += bytes;
  kept->all.emplace(key, made);
  return made;
}

template struct Prepared<float>;
template struct Prepared<double>;
template class Plan<float>;
template class Plan<double>;
template class Twiddles<float>;
template class Twiddles<double>;
template std::shared_ptr<const Prepared<float>> prepared(const Fft&);
template std::shared_ptr<const Prepared<double>> prepared(const Fft&);

}  // namespace softgpu::libraries::fft
