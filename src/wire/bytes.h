// Packed fields: writing into a growing buffer, reading with every access checked against the end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace gpupool::wire {

/// Bytes to be sent. Grows without initialising, which std::vector cannot: bulk data passes through it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~Buffer() { std::free(data_); }

  /// `count` more bytes, to be filled by the caller before anything else is appended.
  std::byte* grow(std::size_t count) {
    if (capacity_ - size_ < count) enlarge(count);
    std::byte* at = data_ + size_;
    size_ += count;
    return at;
  }
  void append(const void* data, std::size_t count) {
    if (count != 0) std::memcpy(grow(count), data, count);
  }
  void clear() { size_ = 0; }
  /// Cuts the end off: undoes appends.
  void shrink(std::size_t size) { size_ = std::min(size, size_); }

  [[nodiscard]] std::byte* data() { return data_; }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  void enlarge(std::size_t count) {
    const std::size_t wanted = std::max({capacity_ * 2, size_ + count, std::size_t{4096}});
    auto* larger = static_cast<std::byte*>(std::realloc(data_, wanted));
    if (larger == nullptr) throw std::bad_alloc();
    data_ = larger;
    capacity_ = wanted;
  }
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

/// Appends packed fields to a buffer that the caller owns.
class Writer {
 public:
  explicit Writer(Buffer& out) : out_(out) {}

  template <class T>
    requires(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>)
  void put(const T& value) {
    std::memcpy(out_.grow(sizeof(T)), &value, sizeof(T));
  }

  /// u32 length, then the bytes.
  void put_bytes(std::span<const std::byte> bytes) {
    put(static_cast<std::uint32_t>(bytes.size()));
    out_.append(bytes.data(), bytes.size());
  }
  /// As they are.
  void append(std::span<const std::byte> packed) { out_.append(packed.data(), packed.size()); }
  void put_text(std::string_view text) { put_bytes(std::as_bytes(std::span(text))); }

 private:
  Buffer& out_;
};

/// A record as bytes.
template <class Record>
[[nodiscard]] Buffer packed(const Record& record) {
  Buffer bytes;
  Writer out(bytes);
  record.encode(out);
  return bytes;
}

/// Reads packed fields. After the first read past the end every read yields zero and ok() stays false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
    requires(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>)
  T get() {
    T value{};
    if (bytes_.size() < sizeof(T)) {
      fail();
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }

  /// A view into the frame: valid as long as the frame is.
  std::span<const std::byte> get_bytes() {
    const auto size = get<std::uint32_t>();
    return take(size);
  }
  std::string_view get_text() {
    const auto bytes = get_bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::span<const std::byte> take(std::size_t size) {
    if (bytes_.size() < size) {
      fail();
      return {};
    }
    const auto front = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return front;
  }

  [[nodiscard]] bool ok() const { return ok_; }
  /// All fields were there and nothing is left over: what a decoder must check at its end.
  [[nodiscard]] bool finished() const { return ok_ && bytes_.empty(); }
  [[nodiscard]] std::span<const std::byte> rest() const { return bytes_; }
  void fail() {
    ok_ = false;
    bytes_ = {};
  }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

/// And back: false when the bytes are too few, too many, or no such record.
template <class Record>
[[nodiscard]] bool unpack(std::span<const std::byte> bytes, Record& out) {
  Reader in(bytes);
  return Record::decode(in, out);
}

}  // namespace gpupool::wire
