// Images on several workers: a library belongs to no context, so it is on all of them under one handle.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/call/call.h"
#include "client/call/objects.h"
#include "client/objects/images.h"

namespace gpupool::client {

/// Loads by digest, or with the bytes where the worker does not have them. `reply` refers to `bytes`.
CUresult ask_to_load(const void* start, std::size_t size, const messages::LoadImage& m, std::uint64_t context,
                     replies::LoadImage& reply, std::vector<std::byte>& bytes, CUresult& own);
/// The kernels of a reply; false when it makes no sense.
bool decode_kernels(std::span<const std::byte> bytes, Image& image);

/// Once a library is on the worker of `context`: the same on all others, where its kernels may come in
/// another order. What was loaded when one fails stays until the library is unloaded.
CUresult load_on_others(const void* start, std::size_t size, const messages::LoadImage& m,
                        std::uint64_t context, Image& library);
void unload_on_others(const Image& library, const messages::UnloadImage& m);
/// The number of a kernel on a worker, from that on the first one.
std::uint32_t ordinal_on(const Image& library, const WorkerLink& worker, std::uint32_t ordinal);

/// Sends what makes something of a library to every worker that has it; of a module, to its own.
template <class M, class ForOther>
CUresult post_for(const Image& image, std::uint64_t context, const M& message, ForOther adapt) {
  CUresult first = post(message, context);
  if (!image.is_library || !runtime().several()) return first;
  for (unsigned n = 0; n < runtime().workers(); ++n) {
    WorkerLink& worker = runtime().worker(n);
    if (&worker == &worker_of_context(context)) continue;
    M other = message;
    adapt(other, worker);
    const CUresult result = post(other, context_on(worker));
    if (first == CUDA_SUCCESS) first = result;
  }
  return first;
}
template <class M>
CUresult post_for(const Image& image, std::uint64_t context, const M& message) {
  return post_for(image, context, message, [](M&, const WorkerLink&) {});
}

}  // namespace gpupool::client
