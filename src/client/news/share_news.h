// What the worker tells of the shares while they are held: their size, what it takes of them for objects
// whose size this process does not know, and which of those it had no room for.
#pragma once

namespace gpupool::client {

class Connection;
class DeviceMemory;
struct WorkerLink;

/// Keeps `memory` informed of what the worker tells of its devices.
void listen_for_share_news(Connection& connection, DeviceMemory& memory, const WorkerLink& worker);

}  // namespace gpupool::client
