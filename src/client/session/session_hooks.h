// What the session needs of the rooms above it: declared here and defined there, so that it includes none of
// them.
#pragma once

#include <string>
#include <vector>

#include "wire/hello.h"

namespace gpupool::client {

class Connection;
struct WorkerLink;

/// A new connection to a worker: whoever is told something unasked listens from now on (listeners.cpp).
void listen_to_worker(Connection& connection, WorkerLink& worker);

/// Reserves the arenas' ranges for device memory; false and `error` when one is taken (device_memory.cpp).
bool open_device_memory(const std::vector<wire::ArenaDescription>& arenas, std::string& error);

/// Keeps on record what the workers have told of calls that they had no room for (device_memory.cpp).
void hear_refusals();

/// Whether the calling thread is running a function of the program's that stands in a stream: CUDA calls are
/// not permitted there (host_functions.cpp).
bool in_host_function();

/// Makes do with the shares that a worker wishes for, and answers (device_memory.cpp).
void grant_wishes(const WorkerLink& worker, Connection& connection);

}  // namespace gpupool::client
