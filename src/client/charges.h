// What the worker takes of the share for objects whose size this process does not know.
#pragma once

namespace gpupool::client {

class Connection;
class DeviceMemory;

/// Keeps `memory` informed of what the worker tells.
void listen_for_charges(Connection& connection, DeviceMemory& memory);

}  // namespace gpupool::client
