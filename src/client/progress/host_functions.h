// Functions of the program that run in stream order, in a thread of this runtime.
//
// The worker puts a function of its own into the stream, which tells this process when the stream has got
// there and lets the stream go on when the program's function has returned.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "client/call/call_hooks.h"
#include "generated/wire/control.h"

namespace gpupool::client {

/// The number that the wire knows a function with its argument by; kept for ever. 0 when out of memory.
std::uint64_t host_function_token(CUhostFn function, void* data);
/// A number for one call; forgotten when it has been made.
std::uint64_t host_function_once(CUhostFn function, void* data);
/// Null for an unknown one.
CUhostFn host_function_of(std::uint64_t token, void*& data);

/// Once a program uses host functions on a worker: a thread that reads what it says, and runs them.
void watch_host_functions(WorkerLink& worker);
bool host_functions_are_used();
/// A push of the worker: {u64 token, u64 run}. False when it makes no sense.
bool host_function_called(const wire::HostFunction& called, const WorkerLink& worker);

/// One more will run, and is waited for by wait_for_host_functions() (call_hooks.h).
void expect_host_function(const WorkerLink& worker);

}  // namespace gpupool::client
