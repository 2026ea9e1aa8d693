// Modules and libraries: loading, finding kernels, unloading.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "client/call/objects.h"

namespace gpupool::client {

/// Options of the just-in-time compiler as the API gives them.
struct JitOptionsIn {
  unsigned count = 0;
  CUjit_option* options = nullptr;
  void** values = nullptr;
};

/// The wire form of options: {i32 option, u8 is_buffer, u64 value}*.
CUresult encode_options(const JitOptionsIn& in, std::vector<std::byte>& out);
/// Copies the logs of a reply into the buffers that the options name, and their lengths into the size
/// options.
void store_logs(const JitOptionsIn& in, std::span<const std::byte> logs);

/// Bytes of a module image in memory: ELF, fatbin (also behind a wrapper), or PTX text. `start` moves to the
/// fatbin.
CUresult image_size(const void*& start, std::size_t& size);

CUresult load_image(const void* start, std::size_t size, bool is_library, const JitOptionsIn& options,
                    std::uint64_t& handle);
CUresult load_image_file(const char* path, bool is_library, const JitOptionsIn& options,
                         std::uint64_t& handle);
CUresult unload_image(std::uint64_t handle);
std::shared_ptr<Image> find_image(std::uint64_t handle);

/// A handle for the kernel: CUkernel in a library, CUfunction in a module.
CUresult find_kernel(Image& image, std::string_view name, std::uint64_t& handle);
CUresult bind_kernel(Image& image, std::uint32_t ordinal, std::uint64_t& handle);
/// `handle`: of the module or library that it is asked of.
CUresult find_global(Image& image, std::uint64_t handle, const char* name, CUdeviceptr& address,
                     std::size_t& size);
/// The CUfunction made from a CUkernel.
CUresult function_of_kernel(std::uint64_t kernel, std::uint64_t& function);

/// A kernel's for the device of `context`.
CUresult set_function_attribute(const Function& function, std::uint64_t handle, int attribute, int value,
                                std::uint64_t context);
/// The handle of the module that a library is in a context.
CUresult bind_module_of_library(const Image& library, std::uint64_t module, std::uint64_t context);

/// The object behind a CUfunction or a CUkernel; null for neither.
Function* find_function(std::uint64_t handle);

/// Frees what lives in a context: memory, modules, streams, events.
CUresult reset_context(std::uint64_t context, int device);

}  // namespace gpupool::client
