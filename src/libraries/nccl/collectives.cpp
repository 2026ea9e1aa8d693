// The calls that move data: each is a plan.
#include "libraries/nccl/call.h"
#include "libraries/nccl/context.h"

using namespace gpupool::nccl;

namespace {

/// What all of these calls take.
struct Call {
  std::shared_ptr<Communicator> communicator;
  Plan plan;

  Call(const void* handle, std::size_t count, int type, CUstream stream)
      : communicator(communicator_of(handle)) {
    communicator->require_working();
    require(type >= 0 && type < types, "there is no such type");
    plan.type = static_cast<Type>(type);
    plan.count = count;
    plan.stream = stream;
    const auto ranks = static_cast<std::size_t>(communicator->ranks);
    require(count < (std::size_t{1} << 48) / ranks, "a count is too large");
    plan.to.resize(ranks);
    plan.from.resize(ranks);
    const InContext inside(communicator->context);
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    require_driver(driver().cuStreamIsCapturing(stream, &capture), "the stream");
    require(capture == CU_STREAM_CAPTURE_STATUS_NONE, "communication cannot be captured into a graph",
            invalid_usage);
  }

  /// Of a buffer, block `index`.
  [[nodiscard]] CUdeviceptr block(const void* buffer, int index) const {
    require(buffer != nullptr || plan.count == 0, "a buffer is null");
    return reinterpret_cast<CUdeviceptr>(buffer) +
           static_cast<std::size_t>(index) * plan.count * size_of(plan.type);
  }

  void check_rank(int rank) const {
    require(rank >= 0 && rank < communicator->ranks, "there is no such rank");
  }

  void reduce_by(int operation, void* result) {
    require(operation >= 0, "there is no such reduction");
    require(reduces(plan.type), "reductions of 8-bit floating point are not carried");
    if (operation < reductions) {
      plan.reduction = static_cast<Reduction>(operation);
    } else {
      plan.factor = communicator->factors.find(operation);
      require(plan.factor.has_value(), "there is no such reduction of this communicator");
      require(plan.factor->type == plan.type, "a reduction was made for another type");
      plan.reduction = Reduction::sum;
    }
    plan.result = block(result, 0);
  }

  /// The same, or one block for each rank.
  void give_all(const void* buffer, bool apart) {
    for (int rank = 0; rank < communicator->ranks; ++rank) give(rank, buffer, apart ? rank : 0);
  }
  void take_all(const void* buffer, bool apart) {
    for (int rank = 0; rank < communicator->ranks; ++rank) take(rank, buffer, apart ? rank : 0);
  }
  void give(int rank, const void* buffer, int index) {
    plan.to[static_cast<std::size_t>(rank)] = block(buffer, index);
  }
  void take(int rank, const void* buffer, int index) {
    plan.from[static_cast<std::size_t>(rank)] = block(buffer, index);
  }
  void submit_it() { submit(std::move(communicator), std::move(plan)); }
};

// Named as NCCL names them, behind its prefix. NOLINTBEGIN(readability-identifier-naming)
int AllReduce(const void* send, void* receive, std::size_t count, int type, int operation, void* handle,
              CUstream stream) {
  return guarded([&] {
    Call call(handle, count, type, stream);
    call.reduce_by(operation, receive);
    call.give_all(send, false);
    call.take_all(send, false);
    call.submit_it();
  });
}

int Reduce(const void* send, void* receive, std::size_t count, int type, int operation, int root,
           void* handle, CUstream stream) {
  return guarded([&] {
    Call call(handle, count, type, stream);
    call.check_rank(root);
    const bool is_root = call.communicator->rank == root;
    call.reduce_by(operation, is_root ? receive : const_cast<void*>(send));
    call.give(root, send, 0);
    if (is_root) call.take_all(send, false);
    call.submit_it();
  });
}

int ReduceScatter(const void* send, void* receive, std::size_t count, int type, int operation, void* handle,
                  CUstream stream) {
  return guarded([&] {
    Call call(handle, count, type, stream);
    call.reduce_by(operation, receive);
    call.give_all(send, true);
    call.take_all(send, false);
    call.submit_it();
  });
}

int Broadcast(const void* send, void* receive, std::size_t count, int type, int root, void* handle,
              CUstream stream) {
  return guarded([&] {
    Call call(handle, count, type, stream);
    call.check_rank(root);
    if (call.communicator->rank == root) call.give_all(send, false);
    call.take(root, receive, 0);
    call.submit_it();
  });
}

int Bcast(void* buffer, std::size_t count, int type, int root, void* handle, CUstream stream) {
  return Broadcast(buffer, buffer, count, type, root, handle, stream);
}

int AllGather(const void* send, void* receive, std::size_t count, int type, void* handle, CUstream stream) {
  return guarded([&] {
    Call call(handle, count, type, stream);
    call.give_all(send, false);
    call.take_all(receive, true);
    call.submit_it();
  });
}

int AlltoAll(const void* send, void* receive, std::size_t count, int type, void* handle, CUstream stream) {
  return guarded([&] {
    Call call(handle, count, type, stream);
    call.give_all(send, true);
    call.take_all(receive, true);
    call.submit_it();
  });
}

int Gather(const void* send, void* receive, std::size_t count, int type, int root, void* handle,
           CUstream stream) {
  return guarded([&] {
    Call call(handle, count, type, stream);
    call.check_rank(root);
    call.give(root, send, 0);
    if (call.communicator->rank == root) call.take_all(receive, true);
    call.submit_it();
  });
}

int Scatter(const void* send, void* receive, std::size_t count, int type, int root, void* handle,
            CUstream stream) {
  return guarded([&] {
    Call call(handle, count, type, stream);
    call.check_rank(root);
    if (call.communicator->rank == root) call.give_all(send, true);
    call.take(root, receive, 0);
    call.submit_it();
  });
}

int Send(const void* send, std::size_t count, int type, int peer, void* handle, CUstream stream) {
  return guarded([&] {
    Call call(handle, count, type, stream);
    call.check_rank(peer);
    call.plan.lane = Lane::pairs;
    call.give(peer, send, 0);
    call.submit_it();
  });
}

int Recv(void* receive, std::size_t count, int type, int peer, void* handle, CUstream stream) {
  return guarded([&] {
    Call call(handle, count, type, stream);
    call.check_rank(peer);
    call.plan.lane = Lane::pairs;
    call.take(peer, receive, 0);
    call.submit_it();
  });
}
// NOLINTEND(readability-identifier-naming)

}  // namespace

GPUPOOL_NCCL_CALL(AllReduce, (const void* a, void* b, std::size_t n, int type, int by, void* c, CUstream s),
                  (a, b, n, type, by, c, s))
GPUPOOL_NCCL_CALL(Reduce,
                  (const void* a, void* b, std::size_t n, int type, int by, int root, void* c, CUstream s),
                  (a, b, n, type, by, root, c, s))
GPUPOOL_NCCL_CALL(ReduceScatter,
                  (const void* a, void* b, std::size_t n, int type, int by, void* c, CUstream s),
                  (a, b, n, type, by, c, s))
GPUPOOL_NCCL_CALL(Broadcast, (const void* a, void* b, std::size_t n, int type, int root, void* c, CUstream s),
                  (a, b, n, type, root, c, s))
GPUPOOL_NCCL_CALL(Bcast, (void* a, std::size_t n, int type, int root, void* c, CUstream s),
                  (a, n, type, root, c, s))
GPUPOOL_NCCL_CALL(AllGather, (const void* a, void* b, std::size_t n, int type, void* c, CUstream s),
                  (a, b, n, type, c, s))
GPUPOOL_NCCL_CALL(AlltoAll, (const void* a, void* b, std::size_t n, int type, void* c, CUstream s),
                  (a, b, n, type, c, s))
GPUPOOL_NCCL_CALL(Gather, (const void* a, void* b, std::size_t n, int type, int root, void* c, CUstream s),
                  (a, b, n, type, root, c, s))
GPUPOOL_NCCL_CALL(Scatter, (const void* a, void* b, std::size_t n, int type, int root, void* c, CUstream s),
                  (a, b, n, type, root, c, s))
GPUPOOL_NCCL_CALL(Send, (const void* a, std::size_t n, int type, int peer, void* c, CUstream s),
                  (a, n, type, peer, c, s))
GPUPOOL_NCCL_CALL(Recv, (void* a, std::size_t n, int type, int peer, void* c, CUstream s),
                  (a, n, type, peer, c, s))
