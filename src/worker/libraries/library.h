// One of NVIDIA's libraries: a file that is opened when its first function is called.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gpupool::worker {

/// What is told of an operation that failed: the whole sentence, and the library's call that failed last.
struct LibraryTold {
  std::string why, failed;
};

/// Used by one thread at a time.
class Library {
 public:
  /// `file`: its name up to ".so"; `majors`: the versions that will do, the best first. `folders`: where it
  /// is; none: where the system's loader looks. `told` gets a sentence when something is missing.
  Library(const std::vector<std::string>& folders, LibraryTold& told, std::string file,
          std::vector<std::string_view> majors)
      : folders_(folders), told_(told), file_(std::move(file)), majors_(std::move(majors)) {}
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// What `call` returns in place of a status when there is no such library, or no such function in it.
  static constexpr int missing = -1;

  /// Calls a function by its C interface: the arguments must have exactly the types of its parameters.
  template <class... A>
  int call(std::string_view name, A... arguments) {
    auto* const function = reinterpret_cast<int (*)(A...)>(find(name));
    if (function == nullptr) return missing;
    const int status = function(arguments...);
    if (status != 0) failed(name, status);
    return status;
  }

 private:
  void* find(std::string_view name);
  bool open();
  void failed(std::string_view name, int status);

  const std::vector<std::string>& folders_;
  LibraryTold& told_;
  const std::string file_;
  const std::vector<std::string_view> majors_;
  void* library_ = nullptr;
  std::map<std::string, void*, std::less<>> found_;
};

}  // namespace gpupool::worker
