// What the worker tells of the shares while they are held: their size, and what it takes of them for objects
// whose size this process does not know.
#pragma once

namespace gpupool::client {

class Connection;
class DeviceMemory;

/// Keeps `memory` informed.
void listen_for_share_news(Connection& connection, DeviceMemory& memory);

}  // namespace gpupool::client
