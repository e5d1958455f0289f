#include "rendezvous/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;
using Source = Identity::Source;

constexpr char kTable[] = R"({"version": "1.0", "server_count": "2", "status": "completed", "server_list": [
  {"server_id": "10.0.0.1", "host_nic_ip": "reserve", "device": [
    {"device_id": "4", "device_ip": "10.1.0.1", "rank_id": "0"},
    {"device_id": "5", "device_ip": "10.1.0.2", "rank_id": "1"}]},
  {"server_id": "10.0.0.2", "device": [
    {"device_id": "0", "device_ip": "10.1.0.3", "rank_id": "2"},
    {"device_id": "1", "device_ip": "10.1.0.4", "rank_id": "3"}]}]})";

StatusOr<Identity> Who(const Environment& environment) {
  return WhoAmI(environment, [](const std::string& path) -> StatusOr<std::string> {
    if (path == "table.json") return std::string(kTable);
    if (path == "bad.json") return std::string("{}");
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  });
}

const std::map<std::string, Environment>& GoodStarts() {
  static const auto* starts = new std::map<std::string, Environment>{
      {"launcher", {{"MSLUA_RANK", "1"}, {"MSLUA_SIZE", "4"}, {"MSLUA_MEETING", "/run/user/1/mslua/meet-1/socket"}}},
      {"worker",
       {{"MS_ROLE", "MS_WORKER"},
        {"MS_WORKER_NUM", "8"},
        {"MS_SCHED_HOST", "10.0.0.9"},
        {"MS_SCHED_PORT", "8118"},
        {"MS_NODE_ID", "5"}}},
      {"table", {{"RANK_TABLE_FILE", "table.json"}, {"RANK_ID", "3"}, {"RANK_SIZE", "4"}, {"DEVICE_ID", "1"}}},
      {"mpi",
       {{"OMPI_COMM_WORLD_RANK", "2"},
        {"OMPI_COMM_WORLD_SIZE", "3"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}},
      {"slurm",
       {{"SLURM_PROCID", "3"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_NTASKS", "4"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_NNODES", "2"},
        {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.3"},
        {"SLURM_JOB_ID", "71"}}},
      {"torchrun",
       {{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"MASTER_ADDR", "h"},
        {"MASTER_PORT", "29500"},
        {"LOCAL_RANK", "1"},
        {"LOCAL_WORLD_SIZE", "2"}}},
      {"single", {{"PATH", "/bin"}}}};
  return *starts;
}

TEST(WhoAmI, EachStart) {
  Identity id = *Who(GoodStarts().at("launcher"));
  EXPECT_EQ(id.source, Source::kLauncher);
  EXPECT_EQ(id.Line(), "rank 1 of 4 (mslua -n)");
  EXPECT_EQ(ToString(id.meeting), "/run/user/1/mslua/meet-1/socket");
  id = *Who(GoodStarts().at("worker"));
  EXPECT_EQ(id.source, Source::kCluster);
  EXPECT_EQ(id.rank, 5);
  EXPECT_EQ(id.size, 8);
  EXPECT_FALSE(id.scheduler);
  id = *Who(GoodStarts().at("table"));
  EXPECT_EQ(id.Line(), "rank 3 of 4 (RANK_TABLE_FILE)");
  EXPECT_EQ(id.local_rank, 1);
  EXPECT_EQ(id.local_size, 2);
  EXPECT_EQ(id.device_id, 1);
  EXPECT_EQ(ToString(id.meeting), "10.0.0.1:6667");
  id = *Who(GoodStarts().at("mpi"));
  EXPECT_EQ(id.source, Source::kMpi);
  EXPECT_EQ(id.rank, 2);
  EXPECT_EQ(id.local_rank, 0);
  id = *Who(GoodStarts().at("slurm"));
  EXPECT_EQ(id.rank, 3);
  EXPECT_EQ(ToString(id.meeting), "10.0.0.3:20071");
  id = *Who(GoodStarts().at("torchrun"));
  EXPECT_EQ(id.rank, 1);
  EXPECT_EQ(ToString(id.meeting), "h:29500");
  id = *Who(GoodStarts().at("single"));
  EXPECT_EQ(id.Line(), "rank 0 of 1 (no launcher)");
  EXPECT_TRUE(id.notices.empty());
}

// Ranks of one host meet where no other host, and no other user, can reach them.
TEST(WhoAmI, OneHost) {
  const auto one_host = [](const char* start, const Environment& changes) {
    Environment env = GoodStarts().at(start);
    for (const auto& [name, value] : changes) env[name] = value;
    return Who(env)->one_host;
  };
  EXPECT_TRUE(one_host("launcher", {}));
  EXPECT_FALSE(one_host("worker", {}));
  for (const char* host : {"127.0.0.1", "127.3.0.1", "localhost", "::1"}) {
    EXPECT_TRUE(one_host("worker", {{"MS_SCHED_HOST", host}})) << host;
    EXPECT_TRUE(one_host("worker", {{"MS_SCHED_HOST", host}, {"MS_ROLE", "MS_SCHED"}})) << host;
    EXPECT_TRUE(one_host("torchrun", {{"MASTER_ADDR", host}, {"LOCAL_WORLD_SIZE", ""}})) << host;
  }
  EXPECT_FALSE(one_host("worker", {{"MS_SCHED_HOST", "128.0.0.1"}}));
  EXPECT_FALSE(one_host("table", {}));
  EXPECT_TRUE(one_host("torchrun", {})) << "LOCAL_WORLD_SIZE = WORLD_SIZE";
  EXPECT_FALSE(one_host("torchrun", {{"WORLD_SIZE", "4"}}));
  EXPECT_FALSE(one_host("torchrun", {{"LOCAL_WORLD_SIZE", ""}, {"LOCAL_RANK", ""}}));
  EXPECT_FALSE(one_host("slurm", {}));
  EXPECT_TRUE(one_host("slurm", {{"SLURM_NNODES", "1"}}));
  EXPECT_FALSE(one_host("slurm", {{"SLURM_NNODES", ""}})) << "nobody says so";
}

TEST(WhoAmI, FirstMatchWins) {
  const std::vector<std::pair<const char*, Source>> order = {
      {"launcher", Source::kLauncher}, {"worker", Source::kCluster}, {"table", Source::kRankTable},
      {"mpi", Source::kMpi},           {"slurm", Source::kSlurm},    {"torchrun", Source::kTorchrun}};
  Environment all;
  for (size_t i = order.size(); i-- > 0;) {
    for (const auto& [name, value] : GoodStarts().at(order[i].first)) all.emplace(name, value);
    auto id = Who(all);
    ASSERT_TRUE(id.ok()) << id.status();
    EXPECT_EQ(id->source, order[i].second);
  }
}

TEST(WhoAmI, ClusterRoles) {
  Environment env = GoodStarts().at("worker");
  env["MS_ROLE"] = "MS_SCHED";
  env["MS_SCHED_PORT"] = "0";
  Identity id = *Who(env);
  EXPECT_TRUE(id.scheduler);
  EXPECT_EQ(id.Line(), "scheduler of 8 workers at 10.0.0.9:0 (MS_ROLE)");
  env = GoodStarts().at("worker");
  env["MS_SERVER_NUM"] = "2";
  EXPECT_EQ(Who(env)->notices.size(), 1u);
  for (const char* role : {"MS_PSERVER", "MS_SERVER"}) {
    env["MS_ROLE"] = role;
    EXPECT_THAT(std::string(Who(env).status().message()),
                HasSubstr(absl::StrCat("MS_ROLE=", role, ": there are no parameter servers here; start workers")));
  }
  env = GoodStarts().at("worker");
  env["MS_NODE_ID"] = "worker_10";
  EXPECT_EQ(Who(env)->rank, -1);
  env.erase("MS_NODE_ID");
  EXPECT_EQ(Who(env)->Line(), "a worker of 8, scheduler at 10.0.0.9:8118 (MS_ROLE)");
}

TEST(WhoAmI, MindSporesRecoveryBelongsToAScheduler) {
  for (auto [start, env] : GoodStarts()) {
    env["MS_ENABLE_RECOVERY"] = "0";
    EXPECT_EQ(Who(env)->recovery, "") << start;
    env["MS_ENABLE_RECOVERY"] = "1";
    env["MS_RECOVERY_PATH"] = "/tmp/recovery";
    const auto id = Who(env);
    if (id.ok()) {
      EXPECT_EQ(id->source, Identity::Source::kCluster) << start;
      EXPECT_THAT(id->recovery, testing::StartsWith("cluster-"));
      EXPECT_EQ(id->recovery_path, "/tmp/recovery");
      env.erase("MS_RECOVERY_PATH");
      EXPECT_THAT(std::string(Who(env).status().message()), HasSubstr("MS_RECOVERY_PATH: expected the folder"));
    } else {
      EXPECT_THAT(std::string(id.status().message()), HasSubstr("use mslua train --recover")) << start;
    }
  }
}

TEST(WhoAmI, AStarterNamesTheJobToRecover) {
  EXPECT_EQ(Who({{"MSLUA_RECOVERY", "5f3a"}})->recovery, "5f3a");
  EXPECT_FALSE(Who({{"MSLUA_RECOVERY", "5f3a"}})->recovery_disk);
  EXPECT_EQ(Who({{"MSLUA_RECOVERY", "5f3a:disk"}})->recovery, "5f3a");
  EXPECT_TRUE(Who({{"MSLUA_RECOVERY", "5f3a:disk"}})->recovery_disk);
  EXPECT_THAT(std::string(Who({{"MSLUA_RECOVERY", "../x"}}).status().message()), HasSubstr("MSLUA_RECOVERY: expected"));
}

// Every variable that must be a number, malformed in every way: one error that names it.
TEST(WhoAmI, EveryMalformedVariable) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> numbers = {
      {"launcher", {"MSLUA_RANK", "MSLUA_SIZE"}},
      {"worker", {"MS_WORKER_NUM", "MS_SCHED_PORT", "MS_SERVER_NUM", "MS_ENABLE_RECOVERY", "MS_CLUSTER_TIMEOUT"}},
      {"table", {"RANK_ID", "RANK_SIZE", "DEVICE_ID"}},
      {"mpi",
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}},
      {"slurm", {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NNODES", "SLURM_JOB_ID", "MASTER_PORT"}},
      {"torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"}}};
  for (const auto& [start, names] : numbers) {
    for (const char* name : names) {
      for (const char* bad : {"x", "-1", "1.5", " 1", "1 ", "+1", "0x1", "99999999999999999999", "2000000000"}) {
        Environment env = GoodStarts().at(start);
        env[name] = bad;
        const auto id = Who(env);
        ASSERT_EQ(id.status().code(), absl::StatusCode::kInvalidArgument) << name << "=" << bad;
        EXPECT_THAT(std::string(id.status().message()), HasSubstr(absl::StrCat(name, ": expected")));
        EXPECT_THAT(std::string(id.status().message()), HasSubstr(absl::StrCat("'", bad, "'")));
      }
    }
  }
}

TEST(WhoAmI, EveryMissingVariable) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> needed = {
      {"launcher", {"MSLUA_SIZE", "MSLUA_MEETING"}},
      {"worker", {"MS_WORKER_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT"}},
      {"table", {"RANK_ID"}},
      {"mpi", {"OMPI_COMM_WORLD_SIZE"}},
      {"slurm", {"SLURM_NTASKS"}},
      {"torchrun", {"MASTER_ADDR", "MASTER_PORT"}}};
  for (const auto& [start, names] : needed) {
    for (const char* name : names) {
      for (bool empty : {false, true}) {
        Environment env = GoodStarts().at(start);
        if (empty) {
          env[name] = "";
        } else {
          env.erase(name);
        }
        EXPECT_THAT(std::string(Who(env).status().message()), HasSubstr(name));
      }
    }
  }
}

TEST(WhoAmI, AFileOfRanksThatIsNotThere) {
  Environment env = GoodStarts().at("table");
  env["RANK_TABLE_FILE"] = "gone.json";
  EXPECT_EQ(Who(env).status().message(), "RANK_TABLE_FILE: gone.json: no such file");
}

TEST(WhoAmI, Contradictions) {
  const auto refused = [](Environment env, const char* why) {
    const auto id = Who(env);
    EXPECT_EQ(id.status().code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_THAT(std::string(id.status().message()), HasSubstr(why));
  };
  Environment env = GoodStarts().at("worker");
  env["MS_ROLE"] = "WORKER";
  refused(env, "MS_ROLE: expected MS_SCHED or MS_WORKER, got 'WORKER'");
  env = GoodStarts().at("worker");
  env["MS_NODE_ID"] = "8";
  refused(env, "MS_NODE_ID: expected a whole number from 0 to 7, got '8'");
  env["MS_NODE_ID"] = std::string(200, 'n');
  refused(env, "at most 128");
  env = GoodStarts().at("table");
  env["RANK_SIZE"] = "8";
  refused(env, "RANK_SIZE: expected 4, the number of ranks in the table, got '8'");
  env = GoodStarts().at("table");
  env["RANK_TABLE_FILE"] = "bad.json";
  refused(env, "RANK_TABLE_FILE=bad.json: rank table");
  env["RANK_TABLE_FILE"] = "gone.json";
  EXPECT_EQ(Who(env).status().code(), absl::StatusCode::kNotFound);
  env = GoodStarts().at("launcher");
  env["MSLUA_RANK"] = "4";
  refused(env, "MSLUA_RANK: expected a whole number from 0 to 3, got '4'");
  env["MSLUA_RANK"] = "0";
  for (const char* elsewhere : {"nowhere", "127.0.0.1:4000"}) {
    env["MSLUA_MEETING"] = elsewhere;
    refused(env, "MSLUA_MEETING: expected the path of a socket");
  }
  env = GoodStarts().at("slurm");
  env.erase("SLURM_LAUNCH_NODE_IPADDR");
  refused(env, "MASTER_ADDR");
  refused({{"MS_WORKER_NUM", "2"}}, "MS_ROLE is not");
  refused({{"RANK_ID", "2"}}, "RANK_TABLE_FILE is not");
  refused({{"RANK", "2"}}, "WORLD_SIZE is not");
  refused({{"WORLD_SIZE", "2"}}, "RANK is not");
  EXPECT_EQ(Who({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}})->source, Source::kSingle);  // a batch script
}

TEST(WhoAmI, OnlyKnownVariablesAreRecorded) {
  Environment env = GoodStarts().at("worker");
  env["AWS_SECRET_ACCESS_KEY"] = "s";
  env["MS_PASSWORD"] = "p";
  EXPECT_EQ(LaunchVariables(env), GoodStarts().at("worker"));
}

}  // namespace
}  // namespace mslua
