// What the worker takes of the share for objects whose size this process does not know.
#pragma once

namespace gpupool::client {

class Connection;
class DeviceMemory;
struct WorkerLink;

/// Keeps `memory` informed of what the worker tells of its devices.
void listen_for_charges(Connection& connection, DeviceMemory& memory, const WorkerLink& worker);

}  // namespace gpupool::client
