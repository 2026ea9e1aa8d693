// Where the contents of ordinary device memory lie during a process checkpoint: host memory that no kernel
// reaches.
//
// Device memory of a software GPU is host memory too, so its pages need not be copied: they change their
// place. A system that cannot do that has them copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace softgpu::driver {

class HostStore {
 public:
  HostStore() = default;
  ~HostStore();
  HostStore(HostStore&& other) noexcept;
  HostStore& operator=(HostStore&& other) noexcept;

  // Room for `size` bytes. Throws Error(OUT_OF_MEMORY).
  explicit HostStore(std::size_t size);

  // Takes the contents of private memory away from its addresses, which cannot be touched afterwards. Memory
  // that has been taken stays in the store when a call throws Error(OUT_OF_MEMORY).
  void take(std::uint64_t address, std::size_t size);
  // Gives everything back to the addresses that it was taken from. Throws Error(OPERATING_SYSTEM); may be
  // tried again.
  void give_back();

 private:
  struct Piece {
    std::size_t size;
    std::size_t offset;  // in the store
  };

  char* place_ = nullptr;
  std::size_t size_ = 0;
  std::size_t used_ = 0;
  std::map<std::uint64_t, Piece> pieces_;  // by the address that it was taken from
};

}  // namespace softgpu::driver
