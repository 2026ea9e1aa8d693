// Options of the just-in-time compiler: to the wire, and their logs back.
#include <algorithm>
#include <cstring>

#include "client/objects/images.h"
#include "wire/bytes.h"

namespace gpupool::client {
namespace {

constexpr unsigned max_options = 64;
constexpr std::uint64_t max_log = 1 << 20;

bool is_log(CUjit_option option) {
  return option == CU_JIT_INFO_LOG_BUFFER || option == CU_JIT_ERROR_LOG_BUFFER;
}
CUjit_option size_option(CUjit_option log) {
  return log == CU_JIT_INFO_LOG_BUFFER ? CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES
                                       : CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
}
bool has_pointer(CUjit_option option) {
  return option == CU_JIT_GLOBAL_SYMBOL_NAMES || option == CU_JIT_GLOBAL_SYMBOL_ADDRESSES ||
         option == CU_JIT_REFERENCED_KERNEL_NAMES || option == CU_JIT_REFERENCED_VARIABLE_NAMES;
}

void** value_of(const JitOptionsIn& in, CUjit_option option) {
  for (unsigned n = 0; n < in.count; ++n) {
    if (in.options[n] == option) return &in.values[n];
  }
  return nullptr;
}

/// Sizes are 32-bit numbers in a pointer-sized slot whose upper half nobody promises to clear.
std::uint64_t log_size(const JitOptionsIn& in, CUjit_option log) {
  void** const size = value_of(in, size_option(log));
  return size == nullptr ? 0
                         : std::min<std::uint64_t>(
                               static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(*size)), max_log);
}

}  // namespace

CUresult encode_options(const JitOptionsIn& in, std::vector<std::byte>& out) {
  if (in.count == 0) return CUDA_SUCCESS;
  if (in.count > max_options || in.options == nullptr || in.values == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  wire::Buffer buffer;
  wire::Writer writer(buffer);
  for (unsigned n = 0; n < in.count; ++n) {
    const CUjit_option option = in.options[n];
    if (has_pointer(option)) return CUDA_ERROR_NOT_SUPPORTED;
    const bool log = is_log(option);
    writer.put(static_cast<std::int32_t>(option));
    writer.put(static_cast<std::uint8_t>(log));
    writer.put(log ? log_size(in, option)
                   : static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(in.values[n])));
  }
  out.assign(buffer.bytes().begin(), buffer.bytes().end());
  return CUDA_SUCCESS;
}

void store_logs(const JitOptionsIn& in, std::span<const std::byte> logs) {
  wire::Reader reader(logs);
  for (unsigned n = 0; n < in.count; ++n) {
    if (in.options[n] == CU_JIT_WALL_TIME) in.values[n] = nullptr;  // 0.0 ms: what counts is the way there
    if (!is_log(in.options[n])) continue;
    const auto text = reader.get_bytes();
    const std::uint64_t room = log_size(in, in.options[n]);
    if (!reader.ok() || in.values[n] == nullptr || room == 0) continue;
    const std::size_t size = std::min<std::size_t>(text.size(), room - 1);
    if (size != 0) std::memcpy(in.values[n], text.data(), size);
    static_cast<char*>(in.values[n])[size] = '\0';
    if (void** const length = value_of(in, size_option(in.options[n])))
      *length = reinterpret_cast<void*>(size);
  }
}

}  // namespace gpupool::client
