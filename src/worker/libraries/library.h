// One of NVIDIA's libraries: a file that is opened when its first function is called.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gpupool::worker {

/// What is told of an operation that failed: the whole sentence, and the library's call that failed last.
struct LibraryTold {
  std::string why, failed;
};

/// What surrounds the making of something that lasts: the opening of a library, a handle, a plan. That can
/// take seconds and gives the device no work: the session's turn ends before it and begins anew behind it, so
/// that nobody waits for it and nobody is charged. Used by one thread at a time.
class Preparation {
 public:
  /// For the operation that is being executed; empty: nothing is to be done.
  std::function<void()> begins, ends;

  /// One within another is part of it.
  class Scope {
   public:
    explicit Scope(Preparation& of) : of_(of) {
      if (of_.depth_++ == 0 && of_.begins) of_.begins();
    }
    ~Scope() {
      if (--of_.depth_ == 0 && of_.ends) of_.ends();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Preparation& of_;
  };

 private:
  int depth_ = 0;
};

/// Used by one thread at a time.
class Library {
 public:
  /// `file`: its name up to ".so"; `majors`: the versions that will do, the best first. `folders`: where it
  /// is; none: where the system's loader looks. `told` gets a sentence when something is missing.
  Library(const std::vector<std::string>& folders, LibraryTold& told, Preparation& preparation,
          std::string file, std::vector<std::string_view> majors)
      : folders_(folders),
        told_(told),
        preparation_(preparation),
        file_(std::move(file)),
        majors_(std::move(majors)) {}
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
  Preparation& preparation_;
  const std::string file_;
  const std::vector<std::string_view> majors_;
  void* library_ = nullptr;
  std::map<std::string, void*, std::less<>> found_;
};

}  // namespace gpupool::worker
