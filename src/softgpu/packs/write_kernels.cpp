#include "softgpu/packs/write_kernels.h"

#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#if GPUPOOL_HAVE_ZSTD
#include <zstd.h>
#endif

namespace softgpu::packs {
namespace {

constexpr std::uint64_t longest_text = std::uint64_t{256} << 20;

std::string compressed([[maybe_unused]] const std::string& text) {
#if GPUPOOL_HAVE_ZSTD
  constexpr int level = 15;
  std::string frame(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size = ZSTD_compress(frame.data(), frame.size(), text.data(), text.size(), level);
  if (!ZSTD_isError(size)) {
    frame.resize(size);
    return frame;
  }
#endif
  return {};
}

}  // namespace

std::string write_kernels(std::istream& input, const std::string& path) {
  std::string table = "gpupool-kernels 1\n";
  std::string frames;
  std::string line;
  while (std::getline(input, line)) {
    std::istringstream words(line);
    std::uint64_t size = 0;
    if (!(words >> size) || size == 0 || size > longest_text) return "a frame's size is wrong";
    std::string text(size, '\0');
    if (!input.read(text.data(), static_cast<std::streamsize>(size))) return "a frame is cut short";
    const std::string frame = compressed(text);
    if (frame.empty()) return "this build cannot compress";
    const std::string place =
        std::to_string(frames.size()) + ' ' + std::to_string(frame.size()) + ' ' + std::to_string(size) + ' ';
    for (std::string name; words >> name;) table += place + name + '\n';
    frames += frame;
  }
  // Two builds may write the same file.
  const std::string unfinished = path + ".new." + std::to_string(getpid());
  std::ofstream file(unfinished, std::ios::binary);
  file << table << '\n' << frames;
  file.close();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    std::remove(unfinished.c_str());
    return "cannot be written";
  }
  return {};
}

}  // namespace softgpu::packs
