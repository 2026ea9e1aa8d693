// What the worker's exit statuses say to the node agent.
#pragma once

namespace gpupool::worker {

/// Somebody who knows the session's token has ended the session (Control::end_session).
inline constexpr int reset_exit = 10;

}  // namespace gpupool::worker
