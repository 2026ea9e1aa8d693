// Stream capture: work issued to a capturing stream becomes nodes of a graph instead of being executed.
#pragma once

#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "softgpu/driver/base/cuda_api.h"

namespace softgpu::driver {

class Graph;
struct GraphNode;
class Stream;

using GraphNodeRef = GraphNode*;

// One capture, shared by all streams that joined it through events. Guarded by the context's submit mutex.
struct Capture {
  unsigned long long id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::shared_ptr<Graph> graph;
  Stream* origin = nullptr;
  std::thread::id thread;
  bool invalidated = false;
  bool makes_graph = true;                   // false: adds to a graph that the program has
  std::set<std::shared_ptr<Stream>> joined;  // without the origin
};

}  // namespace softgpu::driver
