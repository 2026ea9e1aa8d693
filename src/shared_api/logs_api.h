// cuLogs*, over an ErrorLog: the same for every library that exports them.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "shared_api/error_log.h"

namespace gpupool::logs_api {

CUresult register_callback(ErrorLog& log, CUlogsCallback callback, void* data, CUlogsCallbackHandle* out);
CUresult unregister_callback(ErrorLog& log, CUlogsCallbackHandle callback);
CUresult current(const ErrorLog& log, CUlogIterator* out, unsigned flags);
CUresult dump_to_memory(const ErrorLog& log, CUlogIterator* iterator, char* buffer, std::size_t* size,
                        unsigned flags);
CUresult dump_to_file(const ErrorLog& log, CUlogIterator* iterator, const char* path, unsigned flags);

}  // namespace gpupool::logs_api
