// Collectives between devices: NCCL, beside the groups of the host, which carry its ids and say whose rank has failed.
// libnccl is opened at run time, when the first group is made.
//
// Calls are enqueued, one after the other, on one stream of the device: ranks that make their calls in one order cannot
// wait for each other in a circle. Nothing here blocks for ever: communicators are non-blocking, and who waits for the
// device watches NCCL, the other ranks and the clock, and aborts all communicators when one of them fails.
//
// Calls may be captured with other work (Capture): each run of the graph makes them, and is watched as calls that are
// enqueued one by one. All ranks of a group capture together, and run what they have captured together.
//
// Reductions are repeatable on the same world; their order is NCCL's. 16-bit floats are combined in 16 bits.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/communicator.h"
#include "collectives/groups.h"
#include "core/base/clock.h"
#include "core/device/device.h"

namespace mslua {

// Whether NCCL gives what call.h promises: not the mean of integers, nor max and min of floats, where a NaN would be
// lost. The same on all ranks that make the same call.
bool NcclDoes(const Call& call);

// When NCCL is used.
enum class NcclUse {
  kWherePossible,  // else collectives are staged through host memory
  kAlways,         // else it is an error
};

class NcclGroup;
class NcclWorld;

// What NcclWorld::Capture gives: a graph with the calls in it. NCCL waits for the end of all graphs that have calls of
// a communicator before it ends that, so the world takes the graphs away first.
class NcclGraph {
 private:
  friend class NcclGroup;
  friend class NcclWorld;
  struct Recorded {
    NcclGroup* group = nullptr;
    Call call;
    std::string what;
    DeviceEvent ready, done;  // as of Pending, of the newest run
    DeviceEvent joined;       // as done, within the graph
  };
  CapturedGraph graph_;
  std::vector<Recorded> calls_;
};

// A communicator of NCCL with the ranks of a group of the host.
class NcclGroup {
 public:
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  int rank() const { return host_->rank(); }
  int size() const { return host_->size(); }

  // Enqueues `call`, whose buffers are memory of the device, behind what `stream` has been given, and returns its
  // number. `call.source` names the recipe line, and outlives a graph in which the call is captured. InvalidArgument: a
  // call that NCCL does not do.
  StatusOr<uint64_t> Enqueue(const Call& call, DeviceStream& stream);

 private:
  friend class NcclWorld;
  NcclGroup(NcclWorld* world, Communicator* host) : world_(world), host_(host) {}
  // The calls of NCCL for `call`.
  Status Begin(const Call& call);
  StatusOr<uint64_t> Record(const Call& call, const std::string& what, DeviceStream& stream);
  // Waits until NCCL has taken what it was given, and gives its verdict.
  Status Settle(const std::string& what);
  void Leave();

  NcclWorld* const world_;
  Communicator* const host_;
  cuda::NcclComm comm_ = nullptr;
  uint64_t calls_ = 0;
};

// What a rank's groups have in common. Used by the rank's own thread.
class NcclWorld {
 public:
  // `staged` is told, once, why a group is staged.
  static StatusOr<std::unique_ptr<NcclWorld>> Make(std::shared_ptr<Groups> groups, Device* device, NcclUse use,
                                                   std::function<void(const std::string&)> staged = {});
  ~NcclWorld();
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  // The group of these ranks of the world; null: their collectives are staged. Made on first use by its members
  // together, which all decide alike: NCCL is used where each has the library, in one version, and a device of its own.
  StatusOr<NcclGroup*> Get(absl::Span<const int64_t> ranks, absl::string_view source);

  // What `stream` is given from now on runs after the call of this number.
  Status After(uint64_t number, DeviceStream& stream);
  // Captures what `enqueue` gives to `stream` and to the groups. The calls have been made before, so that all
  // connections are there.
  StatusOr<std::shared_ptr<NcclGraph>> Capture(DeviceStream& stream, const std::function<Status()>& enqueue);
  Status Run(const std::shared_ptr<NcclGraph>& graph, DeviceStream& stream);
  // Waits until `stream` and all calls have run. An error ends all groups: it names the call that was waited for.
  Status Wait(DeviceStream& stream);
  // Aborts all communicators, and the groups of the host, which tell the other ranks. Gives the error to return.
  Status Fail(const Status& why);

 private:
  friend class NcclGroup;
  // A call that has been enqueued and has not yet ended.
  struct Pending {
    NcclGroup* group = nullptr;
    std::string what;     // "all_reduce sum f32[128] at train.lua:88"
    uint64_t ticket = 0;  // of the flight recorder
    DeviceEvent ready, done;
    std::shared_ptr<NcclGraph> graph;  // null: it was enqueued by itself
    size_t in_graph = 0;
    const DeviceEvent& Ready() const { return graph != nullptr ? graph->calls_[in_graph].ready : ready; }
    const DeviceEvent& Done() const { return graph != nullptr ? graph->calls_[in_graph].done : done; }
  };
  // Of a call's number: it is one of a graph that is being captured.
  static constexpr uint64_t kInGraph = uint64_t{1} << 63;
  struct Member;

  NcclWorld(std::shared_ptr<Groups> groups, Device* device, NcclUse use)
      : groups_(std::move(groups)), device_(device), use_(use) {}
  // This rank's part of the decision, and the decision: why a group is staged, or nothing.
  Member Mine() const;
  StatusOr<std::string> Decide(Communicator& host, absl::string_view source) const;
  StatusOr<std::unique_ptr<NcclGroup>> MakeGroup(Communicator* host, absl::string_view source);
  StatusOr<DeviceEvent> TakeEvent();
  void DropGraphs();
  Status Watch(DeviceStream& stream);
  // Takes away the calls that have ended; whether there were any.
  StatusOr<bool> Retire();
  // An error of NCCL's or of another rank's.
  Status Look();
  // The error of a wait that has taken too long: what other ranks do meanwhile.
  Status TooLate(const std::string& what);
  Status Check(cuda::Result result, const char* function) const;

  const std::shared_ptr<Groups> groups_;
  Device* const device_;
  const NcclUse use_;
  const cuda::Library<cuda::Nccl>* library_ = nullptr;
  DeviceStream stream_;
  std::map<Communicator*, std::unique_ptr<NcclGroup>> made_;
  std::deque<Pending> pending_;
  uint64_t first_ = 0;  // the number of pending_[0]
  std::vector<DeviceEvent> events_;
  NcclGraph* capturing_ = nullptr;
  std::vector<std::weak_ptr<NcclGraph>> graphs_;
  std::function<void(const std::string&)> staged_;
  Status failed_;
};

}  // namespace mslua
