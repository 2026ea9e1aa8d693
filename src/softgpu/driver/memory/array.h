// CUDA arrays: rows of elements in device memory, behind an opaque handle.
//
// A GPU keeps them tiled; here they are linear, which a program cannot tell apart. Mipmapped arrays and their
// levels share one piece of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

class Context;

/// Device memory that no device pointer reaches. It goes back with its last user.
class ArrayStorage {
 public:
  // Throws Error(OUT_OF_MEMORY).
  ArrayStorage(std::shared_ptr<Context> context, std::size_t size);
  ~ArrayStorage();
  ArrayStorage(const ArrayStorage&) = delete;
  ArrayStorage& operator=(const ArrayStorage&) = delete;

  std::uint64_t address() const { return address_; }
  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  const std::shared_ptr<Context> context_;
  const std::size_t size_;
  std::uint64_t address_ = 0;
};

class Array {
 public:
  // Throws Error: INVALID_VALUE for a shape that cannot be, NOT_SUPPORTED for a format that is not known
  // here.
  static std::shared_ptr<Array> create(const std::shared_ptr<Context>& context,
                                       const CUDA_ARRAY3D_DESCRIPTOR& shape);
  // A part of a larger storage: a level of a mipmapped array.
  Array(std::shared_ptr<ArrayStorage> storage, std::size_t offset, const CUDA_ARRAY3D_DESCRIPTOR& shape,
        bool is_level);

  static void check_shape(const CUDA_ARRAY3D_DESCRIPTOR& shape);
  static std::size_t bytes(const CUDA_ARRAY3D_DESCRIPTOR& shape);
  // Of one element; 0 for a format that is not known here.
  static std::size_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR& shape);

  const CUDA_ARRAY3D_DESCRIPTOR& shape() const { return shape_; }
  Context& context() const { return *storage_->context(); }
  bool is_level() const { return is_level_; }
  std::uint64_t address() const { return storage_->address() + offset_; }
  std::size_t row_bytes() const;  // of the elements themselves
  std::size_t pitch() const;
  std::size_t rows() const;
  std::size_t slices() const;

 private:
  const std::shared_ptr<ArrayStorage> storage_;
  const std::size_t offset_;
  const CUDA_ARRAY3D_DESCRIPTOR shape_;
  const bool is_level_;
};

class MipmappedArray {
 public:
  // More levels than the shape has are as many as it has.
  MipmappedArray(const std::shared_ptr<Context>& context, const CUDA_ARRAY3D_DESCRIPTOR& shape,
                 unsigned levels);

  Context& context() const { return *context_; }
  const std::vector<std::shared_ptr<Array>>& levels() const { return levels_; }

 private:
  const std::shared_ptr<Context> context_;
  std::vector<std::shared_ptr<Array>> levels_;
};

}  // namespace softgpu::driver
