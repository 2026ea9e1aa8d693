// Memory functions on addresses that a program has named: one that is not there is an answer, not the end of
// the process.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softgpu {

// Executes `access(argument)`, which is left by a jump if the processor refuses an address: it may hold
// nothing that has to be destroyed. False: refused, and `address` is where.
bool guarded_access(void (*access)(const void* argument), const void* argument, std::uint64_t& address);

// The same for a lambda over plain memory functions.
template <class Access>
bool guarded(const Access& access, std::uint64_t& address) {
  return guarded_access([](const void* what) { (*static_cast<const Access*>(what))(); }, &access, address);
}

}  // namespace softgpu
