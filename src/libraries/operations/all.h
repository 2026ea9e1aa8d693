// The list of operations: the only one.
#pragma once

#include "libraries/operations/attention.h"
#include "libraries/operations/bands.h"
#include "libraries/operations/batch_normalization.h"
#include "libraries/operations/convolution.h"
#include "libraries/operations/ctc_loss.h"
#include "libraries/operations/decomposition.h"
#include "libraries/operations/dense.h"
#include "libraries/operations/dropout.h"
#include "libraries/operations/factors.h"
#include "libraries/operations/fft.h"
#include "libraries/operations/gemm.h"
#include "libraries/operations/operation.h"
#include "libraries/operations/pointwise.h"
#include "libraries/operations/pooling.h"
#include "libraries/operations/random.h"
#include "libraries/operations/reduction.h"
#include "libraries/operations/response_normalization.h"
#include "libraries/operations/rnn.h"
#include "libraries/operations/softmax.h"
#include "libraries/operations/sparse.h"
#include "libraries/operations/spatial_transformer.h"
#include "libraries/operations/vectors.h"

namespace gpupool::operations {

template <Operation... O>
struct All {};

inline constexpr All<Attention,              //
                     Bands,                  //
                     BatchNormalization,     //
                     Convolution,            //
                     CtcLoss,                //
                     Decomposition,          //
                     Dropout,                //
                     Entrywise,              //
                     Factors,                //
                     Fft,                    //
                     Gemm,                   //
                     Pointwise,              //
                     Pooling,                //
                     Product,                //
                     Random,                 //
                     Reduction,              //
                     ResponseNormalization,  //
                     Rnn,                    //
                     Softmax,                //
                     Solve,                  //
                     SparseArrange,          //
                     SparseEntries,          //
                     SparseMaking,           //
                     SparseProduct,          //
                     SparseSolve,            //
                     SparseVector,           //
                     SpatialTransformer,     //
                     Vectors>
    all_operations{};

}  // namespace gpupool::operations
