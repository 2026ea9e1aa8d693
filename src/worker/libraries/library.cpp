#include "worker/libraries/library.h"

#include <dlfcn.h>

namespace gpupool::worker {

bool Library::open() {
  const Preparation::Scope preparing(preparation_);
  std::vector<std::string> names;
  for (const std::string_view major : majors_) {
    const std::string name = file_ + ".so." + std::string(major);
    for (const std::string& folder : folders_) names.push_back(folder + "/" + name);
    if (folders_.empty()) names.push_back(name);
  }
  for (const std::string& name : names) {
    // It stays open: what it has made in the driver outlives every session.
    library_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) return true;
  }
  told_.why = "this node does not have NVIDIA's " + file_ + ": " + dlerror();
  return false;
}

void Library::failed(std::string_view name, int status) {
  told_.failed = std::string(name) + " returned " + std::to_string(status);
}

void* Library::find(std::string_view name) {
  const auto known = found_.find(name);
  if (known != found_.end()) return known->second;
  if (library_ == nullptr && !open()) return nullptr;
  const std::string of(name);
  void* const function = dlsym(library_, of.c_str());
  if (function == nullptr) {
    told_.why = "NVIDIA's " + file_ + " on this node has no " + of;
    return nullptr;
  }
  found_.emplace(of, function);
  return function;
}

}  // namespace gpupool::worker
