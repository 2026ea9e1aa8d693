// What people call a kernel: the last part of its name in the source.
#pragma once

#include <string>
#include <string_view>

namespace gpupool::worker {

/// Of the name in an image, C++ (mangled) or plain: without namespaces, template arguments, parameters and
/// ABI tags. At most 80 characters of `[A-Za-z0-9_.:<>~-]`; empty when nothing is left.
[[nodiscard]] std::string short_kernel_name(std::string_view name);

}  // namespace gpupool::worker
