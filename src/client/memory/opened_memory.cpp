#include "client/memory/opened_memory.h"
#include "base/mutex.h"
#include "client/process/session_belongings.h"

#include <vector>

namespace gpupool::client {

CUresult OpenedMemory::map(std::uint64_t memory, const ImportedMemory& imported, std::uint64_t& mapping) {
  VirtualMemory& books = virtual_memory();
  CUresult result = books.reserve(imported.device, imported.size, 0, 0, mapping);
  if (result != CUDA_SUCCESS) return result;
  result = books.map(mapping, imported.size, 0, memory);
  if (result == CUDA_SUCCESS) {
    result = books.set_access(mapping, imported.size, imported.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (result != CUDA_SUCCESS) static_cast<void>(books.unmap(mapping, imported.size));
  }
  if (result != CUDA_SUCCESS) static_cast<void>(books.free(mapping, imported.size));
  return result;
}

CUresult OpenedMemory::undo(const Opened& opened) {
  VirtualMemory& books = virtual_memory();
  CUresult first = books.unmap(opened.mapping, opened.mapping_size);
  for (const CUresult next :
       {books.free(opened.mapping, opened.mapping_size), books.release(opened.memory)}) {
    if (first == CUDA_SUCCESS) first = next;
  }
  return first;
}

CUresult OpenedMemory::open(const Ticket& ticket, std::uint64_t context, std::uint64_t pool,
                            std::uint64_t foreign_pool, CUdeviceptr& out) {
  const MutexLock one(opening_);
  {
    const MutexLock lock(mutex_);
    for (auto& [address, known] : opened_) {
      if (known.ticket != ticket || known.block.context != context || known.block.pool != pool) continue;
      ++known.references;
      out = address;
      return CUDA_SUCCESS;
    }
  }
  Opened made;
  ImportedMemory imported;
  const CUresult bad = virtual_memory().import(ExportKind::memory, ticket, made.memory, imported);
  if (bad != CUDA_SUCCESS) return bad;
  CUresult result = imported.pool == foreign_pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = map(made.memory, imported, made.mapping);
  if (result != CUDA_SUCCESS) {
    static_cast<void>(virtual_memory().release(made.memory));
    return result;
  }
  made.block = {made.mapping + imported.offset, imported.length, imported.device, context, pool};
  made.ticket = ticket;
  made.mapping_size = imported.size;
  made.references = 1;
  out = made.block.address;
  const MutexLock lock(mutex_);
  opened_.emplace(out, made);
  any_.store(true);
  return CUDA_SUCCESS;
}

CUresult OpenedMemory::close(std::uint64_t address, bool pooled) {
  Opened last;
  {
    const MutexLock lock(mutex_);
    const auto found = opened_.find(address);
    if (found == opened_.end() || (found->second.block.pool != 0) != pooled) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.references > 0) return CUDA_SUCCESS;
    last = found->second;
    opened_.erase(found);
    any_.store(!opened_.empty());
  }
  return undo(last);
}

void OpenedMemory::close_all_of(std::uint64_t context) {
  std::vector<Opened> doomed;
  {
    const MutexLock lock(mutex_);
    std::erase_if(opened_, [&](const auto& entry) {
      if (entry.second.block.context != context) return false;
      doomed.push_back(entry.second);
      return true;
    });
    any_.store(!opened_.empty());
  }
  for (const Opened& one : doomed) static_cast<void>(undo(one));
}

std::optional<OpenedMemory::Block> OpenedMemory::find(std::uint64_t address) {
  if (!any_.load(std::memory_order_relaxed)) return std::nullopt;
  const MutexLock lock(mutex_);
  auto at = opened_.upper_bound(address);
  if (at == opened_.begin()) return std::nullopt;
  --at;
  if (address - at->first >= at->second.block.size) return std::nullopt;
  return at->second.block;
}

OpenedMemory& opened_memory() {
  static OpenedMemory& only = kept_for_session<OpenedMemory>([](OpenedMemory& kept) { kept.forget(); });
  return only;
}

void OpenedMemory::forget() {
  const MutexLock lock(mutex_);
  opened_.clear();
  any_.store(false);
}

}  // namespace gpupool::client
