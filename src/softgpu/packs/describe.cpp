// What `gpupool-kernel-packs describe` and `texts` print: what a shared library holds for GPUs.
#include "softgpu/packs/describe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/sha256.h"
#include "image/cubin.h"
#include "image/fatbin.h"
#include "softgpu/packs/library_images.h"

namespace {

using Bytes = std::span<const std::byte>;
using gpupool::image::FatbinEntry;

// Kernels have names that assemblers take: nothing in them needs an escape.
bool is_plain(std::string_view name) {
  return name.find_first_of("\"\\") == std::string_view::npos;
}

std::string parameters(const gpupool::image::CubinKernel& kernel) {
  std::string text;
  for (const auto& parameter : kernel.parameters) {
    text += (text.empty() ? "[" : ", [") + std::to_string(parameter.offset) + ", " +
            std::to_string(parameter.size) + "]";
  }
  return "[" + text + "]";
}

void describe(Bytes fat_binary) {
  std::string digests;
  std::map<std::string, std::string> kernels;  // of all architectures; which have the same layouts
  std::set<std::string> variables;
  bool has_ptx = false;
  for (const FatbinEntry& entry : gpupool::image::fatbin_entries(fat_binary)) {
    has_ptx = has_ptx || entry.kind == FatbinEntry::Kind::ptx;
    if (entry.kind != FatbinEntry::Kind::machine_code) continue;
    digests += (digests.empty() ? "\"" : ", \"") + gpupool::hex(gpupool::sha256(entry.payload)) + "\"";
    const auto code = gpupool::image::entry_content(entry);
    const auto cubin = code ? gpupool::image::read_cubin(std::as_bytes(std::span(*code))) : std::nullopt;
    if (!cubin) continue;
    for (const auto& kernel : cubin->kernels) {
      if (is_plain(kernel.name)) kernels.emplace(kernel.name, parameters(kernel));
    }
    for (const auto& variable : cubin->variables) {
      if (is_plain(variable.name)) variables.insert(variable.name);
    }
  }
  std::printf("{\"has_ptx\": %s, \"digests\": [%s], \"kernels\": {", has_ptx ? "true" : "false",
              digests.c_str());
  const char* separator = "";
  for (const auto& [name, layout] : kernels) {
    std::printf("%s\"%s\": %s", separator, name.c_str(), layout.c_str());
    separator = ", ";
  }
  std::printf("}, \"variables\": [");
  separator = "";
  for (const std::string& name : variables) {
    std::printf("%s\"%s\"", separator, name.c_str());
    separator = ", ";
  }
  std::printf("]}\n");
}

}  // namespace

namespace softgpu::packs {
namespace {

// Calls `use` with what the library holds. Returns the exit status.
int with_images(const char* path, const std::function<void(const LibraryImages&)>& use) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat state{};
  if (file < 0 || fstat(file, &state) != 0) {
    std::perror(path);
    return 1;
  }
  const auto size = static_cast<std::size_t>(state.st_size);
  void* const start = size == 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  const auto images =
      start == MAP_FAILED ? std::nullopt : find_images({static_cast<const std::byte*>(start), size});
  if (!images) {
    std::fprintf(stderr, "%s: not a shared library\n", path);
    return 1;
  }
  use(*images);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

// The lowest architecture's: all devices from there on run it.
void print_ptx(Bytes fat_binary) {
  const auto entries = gpupool::image::fatbin_entries(fat_binary);
  const FatbinEntry* lowest = nullptr;
  for (const FatbinEntry& entry : entries) {
    if (entry.kind != FatbinEntry::Kind::ptx) continue;
    if (lowest == nullptr || entry.architecture < lowest->architecture) lowest = &entry;
  }
  const auto text = lowest == nullptr ? std::nullopt : gpupool::image::ptx_text(*lowest);
  if (!text) return;
  std::printf("%zu\n", text->size());
  std::fwrite(text->data(), 1, text->size(), stdout);
}

}  // namespace

int describe_library(const char* path) {
  return with_images(path, [](const LibraryImages& images) {
    std::printf("{\"build_id\": \"%s\"}\n", images.build_id.c_str());
    for (const Bytes each : images.fat_binaries) describe(each);
  });
}

int print_texts(const char* path) {
  return with_images(path, [](const LibraryImages& images) {
    for (const auto& of : {images.fat_binaries, images.parts})
      for (const Bytes each : of) print_ptx(each);
  });
}

}  // namespace softgpu::packs
