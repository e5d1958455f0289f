// A verb as a rank of a job: which one this process is, the others, and how they end together.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "cli/front.h"
#include "core/base/status.h"
#include "launch/network.h"
#include "lua/session.h"

namespace mslua {

enum class Joins { kAtOnce, kWhenAsked };  // before the work; by ms.communication.init

// Runs `work` in a session with `options` and gives the process's exit code: `work`'s, or that of the job's first
// failure. With -n it starts the ranks instead; in a cluster's scheduler (MS_ROLE=MS_SCHED) it gathers the workers.
int RunAsRank(const cli::CommandLine& command, SessionOptions options, Joins joins,
              absl::FunctionRef<StatusOr<int>(Session&)> work);

// The whole of a text file such as a rank table.
StatusOr<std::string> ReadTextFile(const std::string& path);
// --heartbeat-timeout, or the default.
absl::Duration HeartbeatLimit(const cli::CommandLine& command);
// --tls and --insecure-network.
NetworkOptions NetworkOf(const cli::CommandLine& command);

}  // namespace mslua
