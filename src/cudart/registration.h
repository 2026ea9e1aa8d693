// How the registry is filled.
#pragma once

#include "cudart/registry.h"

namespace gpupool::cudart {

FatBinary* register_binary(const void* image);
void register_kernel(FatBinary& binary, const void* host, const char* name);
/// `host_pointer` is null but for managed variables.
void register_variable(FatBinary& binary, const void* host, const char* name, std::size_t size,
                       void** host_pointer);
void unregister_binary(FatBinary& binary);

/// Writes the addresses of a binary's managed variables to where its host code looks for them.
cudaError_t fill_managed_variables(FatBinary& binary);

}  // namespace gpupool::cudart
