// A CUDA context: what belongs to it, its limits, and its sticky error.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "softgpu/driver/base/cuda_api.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/stream/stream.h"

namespace softgpu::driver {

class Context : public std::enable_shared_from_this<Context> {
 public:
  static std::shared_ptr<Context> create(Device& device, unsigned flags, bool primary);
  ~Context();

  Device& device() const { return device_; }
  unsigned long long id() const { return id_; }
  bool primary() const { return primary_; }

  // Throws the sticky error, if there is one, or CONTEXT_IS_DESTROYED.
  void check_usable() const;
  CUresult fault() const { return static_cast<CUresult>(fault_.load()); }
  void set_fault(CUresult code);
  // Does the work. False if it threw an error, which is the sticky error now, unless there was one.
  bool attempt(const std::function<void()>& work);

  std::shared_ptr<Stream> legacy_stream() const { return legacy_; }
  std::shared_ptr<Stream> per_thread_stream();
  std::shared_ptr<Stream> create_stream(unsigned flags, int priority);
  // Its handle is gone. What it has to do is still work of the context.
  void forget_stream(const std::shared_ptr<Stream>& stream);
  std::set<std::shared_ptr<Stream>> streams() const;
  // What is given to any stream from now on comes after `mark`, also in streams that do not exist yet.
  void come_after(const CompletionRef& mark);

  // The last work of each stream that is not done, also of those whose handles are gone.
  std::vector<CompletionRef> pending_work();
  void wait_for_work();
  // Waits for all work, shows printf output, then throws the sticky error if there is one.
  void synchronize();
  // Ends all work, the streams and the kernels' heap. False if another call did; what else the context owns
  // goes with end_context().
  bool destroy();
  bool destroyed() const { return destroyed_.load(); }
  // Set when running kernels must end.
  const std::atomic<bool>& cancel() const { return cancel_; }
  // Whether work that waits for others than its stream must end: by an error, like a kernel that goes on, so
  // that nothing behind it runs.
  bool gives_up() const { return fault() != CUDA_SUCCESS || cancel_ || destroyed_; }

  // Device printf: kept in order of arrival until the next synchronisation, as in CUDA.
  void print(std::string_view text);
  void flush_printf();

  // In-kernel malloc, within CU_LIMIT_MALLOC_HEAP_SIZE.
  std::uint64_t heap_allocate(std::size_t size);
  bool heap_free(std::uint64_t address);
  // Whether one block of the heap holds all of these bytes.
  bool heap_covers(std::uint64_t address, std::size_t size);

  std::size_t limit(CUlimit limit) const;
  void set_limit(CUlimit limit, std::size_t value);

  // Guards the order of submission to all streams of the context, and their capture state.
  gpupool::Mutex submit_mutex;
  std::atomic<unsigned> flags;
  std::atomic<CUfunc_cache> cache_config{CU_FUNC_CACHE_PREFER_NONE};
  std::atomic<CUsharedconfig> shared_config{CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE};

 private:
  friend class Stream;
  void end_kernels();
  void free_heap();
  // Needs the submit mutex.
  enum class Which { all, blocking };  // of all streams but the legacy one
  void collect_pending(std::vector<CompletionRef>& into, Which which);
  void drop_done() REQUIRES(streams_mutex_);
  void begin_after_marks(Stream& made);
  Context(Device& device, unsigned flags, bool primary);

  Device& device_;
  const unsigned long long id_;
  const bool primary_;
  std::atomic<int> fault_{CUDA_SUCCESS};
  std::atomic<bool> cancel_{false};
  std::atomic<bool> destroyed_{false};
  std::shared_ptr<Stream> legacy_;
  mutable gpupool::Mutex streams_mutex_;
  std::set<std::shared_ptr<Stream>> streams_ GUARDED_BY(streams_mutex_);  // all but the legacy one
  // The last work of streams whose handles are gone, until it is done.
  struct Left {
    CompletionRef last;
    bool blocking;
  };
  std::vector<Left> left_ GUARDED_BY(streams_mutex_);
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread_ GUARDED_BY(streams_mutex_);
  std::vector<CompletionRef> marks_ GUARDED_BY(streams_mutex_);  // what new streams come after
  mutable gpupool::Mutex limits_mutex_;
  std::map<int, std::size_t> limits_ GUARDED_BY(limits_mutex_);
  gpupool::Mutex printf_mutex_;
  std::string printf_output_ GUARDED_BY(printf_mutex_);
  gpupool::Mutex heap_mutex_;
  std::map<std::uint64_t, std::size_t> heap_ GUARDED_BY(heap_mutex_);
  std::size_t heap_used_ GUARDED_BY(heap_mutex_) = 0;
};

}  // namespace softgpu::driver
