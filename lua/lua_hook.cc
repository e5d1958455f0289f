#include "lua/lua_hook.h"

#include <algorithm>
#include <cmath>

#include "core/train/step_numbers.h"

namespace mslua {
namespace {

int StopFromLua(lua_State* L) {
  static_cast<Progress*>(lua_touserdata(L, lua_upvalueindex(1)))->Stop();
  return 0;
}

}  // namespace

LuaHook::LuaHook(Session* session, Progress* progress, int hooks) : session_(session), progress_(progress) {
  for (const char* name : {"begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "finish"}) {
    Callback c = Callback::Field(*session, hooks, name);
    if (c.ok()) callbacks_[name] = c;
  }
}

int64_t LuaHook::NextStep(const TrainState& s) {
  if (!Has("step_begin") && !Has("step_end")) return INT64_MAX;
  return seen_ == s.step ? s.step + 1 : s.step;
}

Status LuaHook::AtStep(const TrainState& s) {
  if (s.step == 0 || seen_ == s.step) return absl::OkStatus();
  seen_ = s.step;
  RETURN_IF_ERROR(Fire("step_end", s, s.epoch + 1, s.step_in_epoch));
  // After a stop there is no next step.
  if (progress_->stopped || s.step_in_epoch == progress_->steps_per_epoch) return absl::OkStatus();
  return Fire("step_begin", s, s.epoch + 1, s.step_in_epoch + 1);
}

Status LuaHook::AtEpochBegin(const TrainState& s) {
  RETURN_IF_ERROR(Fire("epoch_begin", s, s.epoch + 1, 0));
  return Fire("step_begin", s, s.epoch + 1, s.step_in_epoch + 1);
}

Status LuaHook::AtEpochEnd(const TrainState& s) { return Fire("epoch_end", s, s.epoch, progress_->steps_per_epoch); }

Status LuaHook::AtBegin(const TrainState& s) { return Fire("begin", s, s.epoch + 1, 0); }

void LuaHook::AtEnd(const TrainState& s, const Status&) {
  const bool inside = s.step_in_epoch > 0;  // of an epoch that was ended early
  late_ = Fire("finish", s, inside ? s.epoch + 1 : std::max<int64_t>(1, s.epoch),
               inside || s.step == 0 ? s.step_in_epoch : progress_->steps_per_epoch);
}

Status LuaHook::Fire(const char* name, const TrainState& s, int64_t epoch, int64_t step) {
  const auto found = callbacks_.find(name);
  if (found == callbacks_.end()) return absl::OkStatus();
  progress_->console->Flush();
  lua_State* L = session_->lua();
  const StackGuard guard(L);
  const RunningLua running(L, found->second.written());
  found->second.Push(L);
  lua_newtable(L);
  const auto set = [L](const char* key, double v) {
    lua_pushnumber(L, v);
    lua_setfield(L, -2, key);
  };
  set("epoch", static_cast<double>(epoch));
  set("step", static_cast<double>(step));
  set("global_step", static_cast<double>(s.step));
  set("epochs", static_cast<double>(progress_->epochs));
  set("steps_per_epoch", static_cast<double>(progress_->steps_per_epoch));
  if (s.step > 0) set("loss", s.loss);
  if (!folder_.empty()) {
    PushString(L, folder_);
    lua_setfield(L, -2, "folder");
  }
  const double lr = progress_->trainer->ScalarNow(0);
  if (!std::isnan(lr)) set("lr", lr);
  lua_newtable(L);
  if (s.step > 0) {
    for (const auto& [step, loss] : StepLossesOf(*progress_->trainer->executable())) set(step.c_str(), loss);
  }
  lua_setfield(L, -2, "losses");
  lua_newtable(L);
  for (const auto& f : progress_->found) set(f.first.c_str(), f.second);
  lua_setfield(L, -2, "metrics");
  lua_pushlightuserdata(L, progress_);
  lua_pushcclosure(L, StopFromLua, 1);
  lua_setfield(L, -2, "stop");
  return session_->Call(1, 0);
}

}  // namespace mslua
