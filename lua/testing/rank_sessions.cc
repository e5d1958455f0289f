#include "lua/testing/rank_sessions.h"

#include <sstream>
#include <thread>

#include "collectives/groups.h"
#include "collectives/host/inproc.h"
#include "core/base/parallel_for.h"
#include "lua/open_session.h"
#include "lua/testing/evaluate.h"

namespace mslua::testing {
namespace {

std::string Results(Session& session, const std::string& code) {
  Status error;
  std::string results = Evaluate(session, code, "@ranks.lua", &error);
  if (!error.ok() && session.groups() != nullptr) session.groups()->world().Abort(error);
  return results;
}

}  // namespace

std::vector<std::string> RunSessions(int ranks, const std::string& code, const std::string& verb,
                                     const std::function<void(SessionOptions&)>& adjust) {
  std::vector<std::string> results(static_cast<size_t>(ranks));
  auto world = MakeInprocWorld(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      SetComputeThreads(1);
      SessionOptions options;
      options.verb = verb;
      options.rank = r;
      options.ranks = ranks;
      if (ranks > 1) options.groups = std::make_shared<Groups>(std::move(world[static_cast<size_t>(r)]));
      if (adjust) adjust(options);
      const auto session = OpenSession(std::move(options));
      results[static_cast<size_t>(r)] = session.ok() ? Results(**session, code) : session.status().ToString();
    });
  }
  for (std::thread& t : threads) t.join();
  return results;
}

std::vector<double> Numbers(const std::string& text) {
  std::vector<double> out;
  std::istringstream in(text);
  for (double v; in >> v;) out.push_back(v);
  return out;
}

}  // namespace mslua::testing
