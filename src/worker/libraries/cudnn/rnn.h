// Recurrent networks on their way to cuDNN.
#pragma once

#include "libraries/operations/rnn.h"
#include "worker/libraries/cudnn/dnn.h"

namespace gpupool::worker {

/// All layers of a network at once, or one of them, whose weights lie among those of the whole network.
struct RnnLayers {
  operations::Rnn of;
  operations::RnnShape whole;
  std::int64_t first = 0;
};

/// By cuDNN, which leaves nothing out between layers.
CUresult run_layers(const Execution& x, const RnnLayers& layers);

/// How much space the node's cuDNN keeps what gradients need in.
CUresult reserve_of(const Execution& x, const RnnLayers& layers, std::size_t& bytes);

/// The program's reserve space is too small for the node's cuDNN.
CUresult refuse_reserve(const Execution& x, std::size_t wanted, std::uint64_t there);

/// Layer by layer, with something left out between them.
CUresult run_with_dropout(const Execution& x, const operations::Rnn& of);

}  // namespace gpupool::worker
