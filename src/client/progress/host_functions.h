// Functions of the program that run in stream order, in a thread of this runtime.
//
// The worker puts a function of its own into the stream, which tells this process when the stream has got
// there and lets the stream go on when the program's function has returned.
//
// The worker reads that answer behind everything that was sent before it. So no message that makes the worker
// wait for the device may stand between the launch of a function and its answer (HoldsUp). Launches and such
// messages come from several threads. What decides is the order of their frames, so functions are counted,
// and the count is looked at, where a frame is given its place: under Outbox::mutex_ (connection.h). There is
// no other lock around it, and under that one only the count's atomics are touched. Who finds functions there
// takes the frame back, gives up the locks that it holds for sending (HandedOver), and waits again.
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
/// That call will not be made: the worker has not heard the number.
void forget_host_function(std::uint64_t once);
/// Null for an unknown one.
CUhostFn host_function_of(std::uint64_t token, void*& data);

/// Once a program uses host functions on a worker: a thread that reads what it says, and runs them.
void watch_host_functions(WorkerLink& worker);
bool host_functions_are_used();
/// A push of the worker: {u64 token, u64 run}. False when it makes no sense.
bool host_function_called(const wire::HostFunction& called, const WorkerLink& worker);
}  // namespace gpupool::client
