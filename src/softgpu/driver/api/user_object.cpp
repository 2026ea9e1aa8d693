// User objects of graphs.
#include "softgpu/driver/graph/user_object.h"
#include "softgpu/driver/api/graph_entry.h"

using namespace softgpu::driver;

namespace {

std::shared_ptr<UserObject> object_of(CUuserObject handle) {
  return registry<UserObject>().get(handle, CUDA_ERROR_INVALID_VALUE);
}

}  // namespace

CUresult cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
  return entry([&] {
    require(object_out && destroy && initialRefcount > 0 && flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    *object_out =
        registry<UserObject>().add<CUuserObject>(std::make_shared<UserObject>(ptr, destroy, initialRefcount));
  });
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  return entry([&] {
    require(count > 0);
    object_of(object)->retain(count);
  });
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  return entry([&] {
    require(count > 0);
    object_of(object)->release(count);
  });
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
  return graph_entry([&] {
    require(count > 0 && (flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) == 0);
    const auto into = graph_of(graph);
    const auto kept = object_of(object);
    if (flags & CU_GRAPH_USER_OBJECT_MOVE) {
      require(count <= kept->references());
    } else {
      kept->retain(count);
    }
    into->user_objects.adopt(kept, count);
  });
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  return graph_entry([&] {
    require(count > 0);
    graph_of(graph)->user_objects.release(object_of(object), count);
  });
}
