#include "softgpu/driver/stream/context.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/mutex.h"
#include "softgpu/driver/base/error.h"
#include "softgpu/driver/base/registry.h"
#include "softgpu/driver/device/published_usage.h"

namespace softgpu::driver {
namespace {

std::atomic<unsigned long long> next_context_id{1};

}  // namespace

Context::Context(Device& device, unsigned flags, bool primary)
    : flags(flags), device_(device), id_(next_context_id.fetch_add(1)), primary_(primary) {
  // The defaults of NVIDIA's driver.
  limits_[CU_LIMIT_STACK_SIZE] = 1024;
  limits_[CU_LIMIT_PRINTF_FIFO_SIZE] = std::size_t{1} << 20;
  limits_[CU_LIMIT_MALLOC_HEAP_SIZE] = std::size_t{8} << 20;
  limits_[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
  limits_[CU_LIMIT_PERSISTING_L2_CACHE_SIZE] = 0;
  limits_[CU_LIMIT_SHMEM_SIZE] = 0;
  limits_[CU_LIMIT_CIG_ENABLED] = 0;
  limits_[CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED] = 0;
}

std::shared_ptr<Context> Context::create(Device& device, unsigned flags, bool primary) {
  std::shared_ptr<Context> context(new Context(device, flags, primary));
  context->legacy_ = std::make_shared<Stream>(*context, Stream::Role::legacy, 0, 0);
  registry<Context>().add<CUcontext>(context);
  PublishedUsage::get().begin();
  return context;
}

Context::~Context() = default;

void Context::check_usable() const {
  if (destroyed_ || cancel_) fail(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  if (const CUresult code = fault(); code != CUDA_SUCCESS) fail(code);
}

void Context::set_fault(CUresult code) {
  int none = CUDA_SUCCESS;
  fault_.compare_exchange_strong(none, code);  // the first error stays
}

bool Context::attempt(const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const Error& error) {
    set_fault(error.code());
  } catch (const std::bad_alloc&) {
    set_fault(CUDA_ERROR_OUT_OF_MEMORY);
  } catch (const std::exception&) {
    set_fault(CUDA_ERROR_UNKNOWN);
  }
  return false;
}

std::shared_ptr<Stream> Context::per_thread_stream() {
  std::shared_ptr<Stream> made;
  {
    const gpupool::MutexLock lock(streams_mutex_);
    std::shared_ptr<Stream>& mine = per_thread_[std::this_thread::get_id()];
    if (mine) return mine;
    made = mine = std::make_shared<Stream>(*this, Stream::Role::per_thread, 0, 0);
    streams_.insert(mine);
  }
  begin_after_marks(*made);
  return made;
}

std::shared_ptr<Stream> Context::create_stream(unsigned flags, int priority) {
  auto stream = std::make_shared<Stream>(*this, Stream::Role::created, flags, priority);
  {
    const gpupool::MutexLock lock(streams_mutex_);
    streams_.insert(stream);
  }
  begin_after_marks(*stream);
  return stream;
}

void Context::come_after(const CompletionRef& mark) {
  {
    const gpupool::MutexLock lock(streams_mutex_);
    std::erase_if(marks_, [](const CompletionRef& known) { return known->done(); });
    marks_.push_back(mark);
  }
  // A stream that comes into being meanwhile is among these or sees the mark, or both.
  for (const auto& stream : streams()) stream->submit(nullptr, {mark});
  legacy_->submit(nullptr, {mark});
}

// Not under the lock: submitting takes the one of the order of submission, which comes first.
void Context::begin_after_marks(Stream& made) {
  std::vector<CompletionRef> marks;
  {
    const gpupool::MutexLock lock(streams_mutex_);
    std::erase_if(marks_, [](const CompletionRef& known) { return known->done(); });
    marks = marks_;
  }
  if (!marks.empty()) made.submit(nullptr, std::move(marks));
}

void Context::forget_stream(const std::shared_ptr<Stream>& stream) {
  {
    const gpupool::MutexLock order(submit_mutex);
    const gpupool::MutexLock lock(streams_mutex_);
    streams_.erase(stream);
    drop_done();
    if (stream->has_pending()) left_.push_back({stream->last_, stream->blocking()});
  }
  stream->close();
}

std::set<std::shared_ptr<Stream>> Context::streams() const {
  const gpupool::MutexLock lock(streams_mutex_);
  return streams_;
}

void Context::drop_done() {
  std::erase_if(left_, [](const Left& work) { return work.last->done(); });
}

void Context::collect_pending(std::vector<CompletionRef>& into, Which which) {
  const gpupool::MutexLock lock(streams_mutex_);
  for (const auto& stream : streams_) {
    if (which == Which::all || stream->blocking()) stream->collect_pending(into);
  }
  drop_done();
  for (const Left& work : left_) {
    if (which == Which::all || work.blocking) into.push_back(work.last);
  }
}

std::vector<CompletionRef> Context::pending_work() {
  const gpupool::MutexLock order(submit_mutex);
  std::vector<CompletionRef> found;
  collect_pending(found, Which::all);
  legacy_->collect_pending(found);
  return found;
}

void Context::wait_for_work() {
  for (const CompletionRef& work : pending_work()) work->wait();
}

void Context::synchronize() {
  wait_for_work();
  flush_printf();
  check_usable();
}

// Running kernels may end by themselves for a moment; kernels that go on are then ended.
void Context::end_kernels() {
  constexpr auto longest_wait = std::chrono::seconds(1);
  auto pause = std::chrono::microseconds(50);
  const auto deadline = std::chrono::steady_clock::now() + longest_wait;
  while (!pending_work().empty()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      cancel_ = true;
      return;
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(2000));
  }
}

bool Context::destroy() {
  if (destroyed_) return false;
  end_kernels();
  wait_for_work();
  flush_printf();
  if (destroyed_.exchange(true)) return false;
  for (const auto& stream : streams()) forget_stream(stream);
  legacy_->close();
  free_heap();
  return true;
}

void Context::print(std::string_view text) {
  const gpupool::MutexLock lock(printf_mutex_);
  printf_output_.append(text);
  // CUDA's ring buffer would drop the oldest output here; showing it early loses nothing.
  if (printf_output_.size() > limit(CU_LIMIT_PRINTF_FIFO_SIZE)) {
    std::fwrite(printf_output_.data(), 1, printf_output_.size(), stdout);
    printf_output_.clear();
  }
}

void Context::flush_printf() {
  const gpupool::MutexLock lock(printf_mutex_);
  if (printf_output_.empty()) return;
  std::fwrite(printf_output_.data(), 1, printf_output_.size(), stdout);
  std::fflush(stdout);
  printf_output_.clear();
}

std::uint64_t Context::heap_allocate(std::size_t size) {
  if (size == 0) return 0;
  const std::size_t most = limit(CU_LIMIT_MALLOC_HEAP_SIZE);
  const gpupool::MutexLock lock(heap_mutex_);
  if (size > most || heap_used_ > most - size) return 0;
  try {
    const std::uint64_t address = device_.allocate(size, 16);
    heap_.emplace(address, size);
    heap_used_ += size;
    return address;
  } catch (const Error&) {
    return 0;  // in-kernel malloc answers NULL
  }
}

bool Context::heap_free(std::uint64_t address) {
  const gpupool::MutexLock lock(heap_mutex_);
  const auto block = heap_.find(address);
  if (block == heap_.end()) return false;
  device_.free(block->first, block->second);
  heap_used_ -= block->second;
  heap_.erase(block);
  return true;
}

void Context::free_heap() {
  const gpupool::MutexLock lock(heap_mutex_);
  for (const auto& [address, size] : heap_) device_.free(address, size);
  heap_.clear();
  heap_used_ = 0;
}

bool Context::heap_covers(std::uint64_t address, std::size_t size) {
  const gpupool::MutexLock lock(heap_mutex_);
  auto next = heap_.upper_bound(address);
  if (next == heap_.begin()) return false;
  const auto& [start, length] = *std::prev(next);
  return address - start < length && size <= length - (address - start);
}

std::size_t Context::limit(CUlimit limit) const {
  const gpupool::MutexLock lock(limits_mutex_);
  const auto found = limits_.find(limit);
  require(found != limits_.end(), CUDA_ERROR_UNSUPPORTED_LIMIT);
  return found->second;
}

void Context::set_limit(CUlimit limit, std::size_t value) {
  require(limit != CU_LIMIT_SHMEM_SIZE && limit != CU_LIMIT_CIG_ENABLED, CUDA_ERROR_UNSUPPORTED_LIMIT);
  require(limit != CU_LIMIT_STACK_SIZE || value <= (std::size_t{512} << 10));
  const gpupool::MutexLock lock(limits_mutex_);
  const auto found = limits_.find(limit);
  require(found != limits_.end(), CUDA_ERROR_UNSUPPORTED_LIMIT);
  found->second = value;
}

}  // namespace softgpu::driver
