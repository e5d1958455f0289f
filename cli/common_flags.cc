#include "cli/common_flags.h"

DEFINE_string(backend, "", "how ranks are connected (default: mpi under mpirun, else native)");
DEFINE_string(ckpt, "last", "the weights to load: of this recipe's last run");
DEFINE_string(device, "cpu", "where to compute");
DEFINE_string(elastic, "", "of a cluster with recovery: ranks that it may continue with");
DEFINE_int64(draws_seed, 1, "the same seed draws the same text");
DEFINE_string(e, "", "run CMD and leave; may be repeated");
DEFINE_double(hang_timeout, 600, "seconds that ranks wait for one that makes no progress");
DEFINE_double(heartbeat_timeout, 2.5, "a rank that is silent for S seconds counts as dead");
DEFINE_string(iface, "", "network interface where other ranks reach this one");
DEFINE_bool(insecure_network, false, "connections to other hosts may go without TLS");
DEFINE_bool(json, false, "print JSON, one object a line");
DEFINE_string(log_ranks, "0", "ranks that print their loss");
DEFINE_int64(max_new, 128, "tokens to generate at most");
DEFINE_int64(max_steps, 0, "stop a training after N steps, without an evaluation there");
DEFINE_int64(n, 1, "start N ranks on this machine and watch them");
DEFINE_string(preset, "", "take the recipe's parameters of preset P");
DEFINE_int64(rank, 0, "show rank R");
DEFINE_double(repetition_penalty, 1, "above 1: tokens that the text has already are less likely");
DEFINE_int64(seed, -1, "seed of weights, shuffling and dropout, instead of the recipe's");
DEFINE_double(temperature, 1, "of the softmax; 0 takes the most likely token");
DEFINE_string(tls, "", "TLS configuration for connections to other hosts (default MSLUA_TLS)");
DEFINE_int64(top_k, 0, "draw from the K most likely tokens; 0: from all");
DEFINE_double(top_p, 1, "draw from the fewest tokens of this probability together");
DEFINE_string(weights_dtype, "f32", "type of a folder's matrices; bf16 needs half the memory");
DEFINE_bool(traceback, false, "print the recipe's functions that led to an error, innermost first");

namespace mslua::cli {

// "mpi|native|nccl". Defined with the verbs, which know the backends.
std::string BackendChoices();

FlagDef Backend() { return OneOf(FLAGS_backend, BackendChoices()); }
FlagDef Checkpoint() { return Text(FLAGS_ckpt, "best|last|PATH"); }
FlagDef Commands() { return Text(FLAGS_e, "CMD").Repeated(); }
FlagDef Device() { return OneOf(FLAGS_device, "cpu|cuda"); }
FlagDef Elastic() { return Text(FLAGS_elastic, "MIN:MAX"); }
FlagDef HangTimeout() { return Number(FLAGS_hang_timeout, "S", 1); }
FlagDef HeartbeatTimeout() { return Number(FLAGS_heartbeat_timeout, "S", 1); }
FlagDef InsecureNetwork() { return Switch(FLAGS_insecure_network); }
FlagDef Interface() { return Text(FLAGS_iface, "NAME|SUBNET"); }
FlagDef Json() { return Switch(FLAGS_json); }
FlagDef LogRanks() { return Text(FLAGS_log_ranks, "all|0,2"); }
FlagDef MaxSteps() { return Integer(FLAGS_max_steps, "N", 1); }
FlagDef Preset() { return Text(FLAGS_preset, "P"); }
FlagDef Rank() { return Integer(FLAGS_rank, "R", 0); }
FlagDef Ranks() { return Integer(FLAGS_n, "N", 1); }
FlagDef Seed() { return Integer(FLAGS_seed, "S", 0); }
FlagDef Tls() { return Text(FLAGS_tls, "FILE"); }
FlagDef Traceback() { return Switch(FLAGS_traceback); }
std::vector<FlagDef> RecipeFlags(std::vector<FlagDef> own) {
  own.insert(own.begin(), {Ranks(), Device(), Preset()});
  own.insert(own.end(), {LogRanks(), Backend(), Interface(), Tls(), InsecureNetwork(), HangTimeout(),
                         HeartbeatTimeout(), Traceback()});
  return own;
}
FlagDef RanksWithoutThem() { return Ranks().Help("compile for N ranks; none is started"); }

std::vector<FlagDef> SamplingFlags(std::vector<FlagDef> own) {
  std::vector<FlagDef> flags = {Checkpoint()};
  flags.insert(flags.end(), own.begin(), own.end());
  const std::vector<FlagDef> drawing = {Integer(FLAGS_max_new, "N", 1),
                                        Number(FLAGS_temperature, "T", 0),
                                        Integer(FLAGS_top_k, "K", 0),
                                        Number(FLAGS_top_p, "P", 0),
                                        Number(FLAGS_repetition_penalty, "R", 0),
                                        Integer(FLAGS_draws_seed, "S", 0).As("seed"),
                                        OneOf(FLAGS_weights_dtype, "f32|bf16").As("dtype"),
                                        Preset(),
                                        Json(),
                                        Traceback()};
  flags.insert(flags.end(), drawing.begin(), drawing.end());
  return flags;
}

}  // namespace mslua::cli
