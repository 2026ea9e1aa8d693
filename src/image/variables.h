// The names of a program image's variables, by which a driver is asked where they lie.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpupool::image {

/// Variables in global and constant memory that PTX text defines at module scope, of every linkage. Texture
/// and surface references are not among them.
std::vector<std::string> ptx_variables(std::string_view text);

/// Those of PTX text, a cubin or a fat binary; of a fat binary those of all its entries, of which a driver
/// loads one. Nothing when an image is none of these or holds nothing that can be read.
std::optional<std::vector<std::string>> variable_names(std::span<const std::byte> content);

/// Whether variables of the image begin as addresses of variables or functions. In another process these lie
/// elsewhere.
bool holds_addresses(std::span<const std::byte> content);

/// Whether kernels of the image call the device's malloc: what they get from it may outlive them.
bool uses_device_heap(std::span<const std::byte> content);

}  // namespace gpupool::image
