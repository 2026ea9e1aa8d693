// cuGetProcAddress: the function of a base name that fits a CUDA version.
#include <algorithm>
#include <cstring>
#include <span>

#include "softgpu/driver/api/entry.h"
#include "softgpu/driver/api/proc_address.h"

using namespace softgpu::driver;

namespace {

struct Answer {
  void* address = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
};

Answer search(const char* symbol, int version, cuuint64_t flags) {
  const std::span table(proc_addresses, proc_address_count);
  const auto less = [](const char* a, const char* b) { return std::strcmp(a, b) < 0; };
  const auto begin =
      std::lower_bound(table.begin(), table.end(), symbol,
                       [&](const ProcAddress& row, const char* name) { return less(row.name, name); });
  Answer answer;
  bool per_thread_found = false;
  for (auto row = begin; row != table.end() && std::strcmp(row->name, symbol) == 0; ++row) {
    if (answer.status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) {
      answer.status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    }
    if (row->version > version) continue;
    if (row->per_thread && !(flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)) continue;
    if (per_thread_found && !row->per_thread) continue;
    per_thread_found = row->per_thread;
    answer = {row->address, CU_GET_PROC_ADDRESS_SUCCESS};
  }
  return answer;
}

void check(const char* symbol, void** pfn, int version, cuuint64_t flags) {
  require(symbol && pfn && version <= CUDA_VERSION);
  require(flags <= (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
}

}  // namespace

// An unknown name is no error here: the status says it (documented for the second version).
CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  return entry_any_time([&] {
    check(symbol, pfn, cudaVersion, flags);
    const Answer answer = search(symbol, cudaVersion, flags);
    *pfn = answer.address;
    if (symbolStatus) *symbolStatus = answer.status;
  });
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  return entry_any_time([&] {
    check(symbol, pfn, cudaVersion, flags);
    const Answer answer = search(symbol, cudaVersion, flags);
    require(answer.address != nullptr, CUDA_ERROR_NOT_FOUND);
    *pfn = answer.address;
  });
}

// Private tables of NVIDIA's own libraries: this driver has none and imitates none.
CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  return entry_any_time([&] {
    require(ppExportTable && pExportTableId);
    fail(CUDA_ERROR_NOT_FOUND);
  });
}
