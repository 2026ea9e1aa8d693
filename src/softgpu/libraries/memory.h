// The device memory that an operation reads and writes. What does not lie in memory that the driver knows
// ends the operation before anything is touched, as an illegal address of a kernel does.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "softgpu/exec/program/engine.h"

namespace softgpu::libraries {

/// Why an operation ends.
class Failure : public std::runtime_error {
 public:
  Failure(softgpu::Fault fault, const std::string& detail) : std::runtime_error(detail), fault_(fault) {}
  [[nodiscard]] softgpu::Fault fault() const { return fault_; }

 private:
  softgpu::Fault fault_;
};

/// The memory as one launch sees it: each launch has an object of its own.
class Memory {
 public:
  using Covers = std::function<bool(std::uint64_t address, std::size_t size)>;
  explicit Memory(Covers covers) : covers_(std::move(covers)), launch_(next_launch()) {}

  /// No other launch has it: what one part of a launch has prepared from operands, later parts may use.
  [[nodiscard]] std::uint64_t launch() const { return launch_; }

  /// `count` elements of T that lie together; `what` names the operand. Throws Failure(illegal_address).
  template <class T>
  [[nodiscard]] T* at(std::uint64_t address, std::uint64_t count, const char* what) const {
    check(address, count, sizeof(T), what);
    return reinterpret_cast<T*>(address);
  }
  /// The same without a type.
  void check(std::uint64_t address, std::uint64_t count, std::size_t bytes, const char* what) const;
  /// `columns` times `rows` elements, whose beginnings are `leading` elements apart; none of them negative.
  void check_rows(std::uint64_t address, std::int64_t rows, std::int64_t columns, std::int64_t leading,
                  std::size_t bytes, const char* what) const;

 private:
  static std::uint64_t next_launch() {
    static std::atomic<std::uint64_t> last = 0;
    return ++last;
  }
  Covers covers_;
  std::uint64_t launch_;
};

}  // namespace softgpu::libraries
