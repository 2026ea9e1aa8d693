// Objects of a thread that calls may still use when the thread's own variables are gone.
#pragma once

#include <unistd.h>

#include <utility>

namespace gpupool {

/// The calling thread's T for one `Purpose`, made when it is first asked for. The main thread's lasts until
/// the process has ended: what programs destroy at exit comes after its thread_local variables are gone, and
/// still calls. Throws std::bad_alloc.
template <class T, class Purpose>
T& of_this_thread() {
  // A variable of its own, without a destructor: it can still be read when `end` is gone.
  static constinit thread_local T* object = nullptr;
  struct End {
    ~End() {
      if (getpid() != gettid()) delete std::exchange(object, nullptr);
    }
  };
  static thread_local End end;
  static_cast<void>(end);
  if (object == nullptr) object = new T;
  return *object;
}

}  // namespace gpupool
