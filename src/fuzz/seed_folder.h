// Where inputs from which fuzzing starts are written to.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

namespace gpupool::fuzz::seeds {

inline std::filesystem::path root;

inline void write(const std::string& target, const std::string& name, std::span<const std::byte> bytes) {
  std::filesystem::create_directories(root / target);
  std::ofstream(root / target / name, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}
inline void write(const std::string& target, const std::string& name, const std::string& text) {
  write(target, name, std::as_bytes(std::span(text)));
}

// session_seeds.cpp
void session_images();
void session_transfers();
void link_states();
// operation_seeds.cpp
void library_operations();

}  // namespace gpupool::fuzz::seeds
