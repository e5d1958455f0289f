// Pipeline parallelism: one stage's program of a traced step, with the messages between stages, micro-batches in the
// order 1F1B.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/sharding/stages.h"

namespace mslua {

// A micro-batch's way through one stage.
struct MicroStep {
  int64_t micro = 0;
  bool backward = false;
  friend bool operator==(const MicroStep& a, const MicroStep& b) {
    return a.micro == b.micro && a.backward == b.backward;
  }
};

// What a stage does, in order: as many forwards as there are later stages, then one forward and one backward in turn,
// then the backwards that are left. So a stage keeps the activations of no more micro-batches than there are stages
// from it on. Without `backward`: the forwards alone.
std::vector<MicroStep> MicroSchedule(int64_t stages, int64_t stage, int64_t micros, bool backward);

// The share of a step in which a stage has nothing to do, where forwards and backwards take the same time in all:
// (stages - 1) / (micros + stages - 1).
double PipelineBubble(int64_t stages, int64_t micros);

// The nodes of one stage, as StagesOf gives them. `column` are the ranks that exchange messages, one a stage. What
// other stages make comes in as an input of a name of its own, which PlaceMessages turns into the message once the
// graph is sharded over the ranks of the stage; what they need goes out by stage_send. Outputs that update nothing are
// broadcast from the stage that makes them, so that every rank has them. All data and scalar inputs stay.
//
// No order of the ranks can make them wait in a circle: sending never waits for its receiver; a stage waits only for
// what other stages make of a micro-batch that it has reached itself, and the schedule of all stages together follows
// data.
StatusOr<Graph> StageProgram(const Graph& graph, const StageTrace& trace, const std::vector<int>& stages, int stage,
                             absl::Span<const int64_t> column);

// Turns the inputs that stand for messages into stage_recv nodes.
void PlaceMessages(Graph* program);

// Whether an input of that name stands for a message.
bool IsMessage(const std::string& input);

}  // namespace mslua
