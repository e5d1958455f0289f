#include "lua/trace.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/sharding/stages.h"
#include "lua/object.h"
#include "lua/op_call.h"
#include "lua/prints.h"
#include "lua/tensor_lua.h"
#include "lua/tensor_methods.h"

namespace mslua {

Trace::Trace(Session& session, std::string name, bool training)
    : session_(session),
      outer_(session.trace),
      id_(session.next_trace_id++),
      training_(training),
      builder_(std::move(name)) {
  session.trace = this;
  if (outer_ == nullptr) session.FollowLines(true);
}

Trace::~Trace() {
  session_.trace = outer_;
  if (outer_ == nullptr) session_.FollowLines(false);
}

void Trace::Locate() {
  auto location = std::make_shared<Location>(*session_.Where());
  location->scope = absl::StrJoin(scopes_, "/");
  builder_.SetLocation(std::move(location));
}

Status Trace::Check() const {
  RETURN_IF_ERROR(builder_.status());
  if (builder_.graph().nodes.size() > kMaxTraceNodes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the traced graph has more than ", kMaxTraceNodes,
        " nodes: loops and recursion in Lua run while the graph is traced; use operators over whole tensors"));
  }
  return absl::OkStatus();
}

Value Trace::Constant(const Tensor& tensor) {
  return builder_.Literal(
      tensor.type, std::string(static_cast<const char*>(tensor.data.get()), static_cast<size_t>(tensor.type.bytes())));
}

Value Trace::Input(absl::string_view name, absl::string_view kind, const TensorType& type) {
  const auto location = builder_.location();
  builder_.SetLocation(nullptr);
  const Value value = builder_.Input(name, kind, type);
  builder_.SetLocation(location);
  return value;
}

Value Trace::ScalarInput(const std::string& name, DType dtype) {
  const auto found = scalars_.find(name);
  if (found != scalars_.end()) return found->second;
  return scalars_[name] = Input(name, kScalar, {dtype, {}});
}

StatusOr<Value> Trace::ParameterInput(const std::shared_ptr<ParameterData>& parameter) {
  const auto found = inputs_.find(parameter.get());
  if (found != inputs_.end()) return found->second;
  const Value value = Input(KeyOf(session_, *parameter), parameter->kind, parameter->type);
  RETURN_IF_ERROR(builder_.status());
  used_.push_back(parameter);
  inputs_.emplace(parameter.get(), value);
  return value;
}

StatusOr<Value> Trace::ParameterValue(const std::shared_ptr<ParameterData>& parameter) {
  const auto found = values_.find(parameter.get());
  if (found != values_.end()) return found->second;
  ASSIGN_OR_RETURN(const Value input, ParameterInput(parameter));
  return by_stage_ && !stages_.empty() ? OfStage(*parameter, input) : input;
}

Value Trace::OfStage(const ParameterData& parameter, Value input) {
  std::vector<std::pair<int, Value>>& stages = read_by_[&parameter];
  for (const auto& [stage, value] : stages) {
    if (stage == stages_.back()) return value;
  }
  stages.emplace_back(stages_.back(), stages.empty() ? input : builder_.Op("stop_gradient", {input}));
  return stages.back().second;
}

std::vector<Value> Trace::StageCopies(const ParameterData& parameter) const {
  std::vector<Value> copies;
  const auto found = read_by_.find(&parameter);
  for (size_t i = 1; found != read_by_.end() && i < found->second.size(); ++i)
    copies.push_back(found->second[i].second);
  return copies;
}

StatusOr<Value> Trace::ToValue(lua_State* L, int index, DType dtype) {
  if (const auto* v = ToObject<TracedValue>(L, index)) {
    if (v->trace_id != id_) {
      return absl::FailedPreconditionError(
          "a traced value is used after its trace has ended: construct must not keep values for later calls");
    }
    return v->value;
  }
  if (const auto* p = ToObject<std::shared_ptr<ParameterData>>(L, index)) return ParameterValue(*p);
  ASSIGN_OR_RETURN(const Tensor t,
                   ReadTensor(session_, L, index,
                              ToObject<Tensor>(L, index) ? absl::nullopt : absl::optional<DType>(dtype), "operand"));
  return Constant(t);
}

void Trace::Push(lua_State* L, Value value) { PushObject<TracedValue>(L, {id_, value}); }

Status Trace::Assign(const std::shared_ptr<ParameterData>& parameter, Value value) {
  const TensorType type = builder_.TypeOf(value);
  if (type != parameter->type) {
    return absl::InvalidArgumentError(absl::StrCat("assign: parameter '", parameter->name, "' is ",
                                                   ToString(parameter->type), ", the value is ", ToString(type)));
  }
  RETURN_IF_ERROR(ParameterInput(parameter).status());
  values_[parameter.get()] = value;
  if (training_) parameter->assigned = true;
  if (std::find(assigned_.begin(), assigned_.end(), parameter) == assigned_.end()) assigned_.push_back(parameter);
  return absl::OkStatus();
}

void Trace::Print(Value value, std::string what) {
  if (what.empty()) what = scopes_.empty() ? "value" : absl::StrJoin(scopes_, "/");
  prints_.emplace_back(std::move(what), value);
}

void Trace::OutputAssigned() {
  for (size_t i = 0; i < prints_.size(); ++i) builder_.Output(PrintName(i, prints_[i].first), prints_[i].second);
  prints_.clear();
  for (const auto& p : assigned_) builder_.Output(p->key, values_[p.get()], p->key);
  assigned_.clear();
}

Status Trace::Call(int arguments, int results) {
  const size_t scopes = scopes_.size();
  const Status called = session_.Call(arguments, results);
  scopes_.resize(std::min(scopes, scopes_.size()));
  RETURN_IF_ERROR(called);
  return Check();
}

void Trace::PushStage(int stage) {
  stages_.push_back(stage);
  stage_changes_.emplace_back(static_cast<int32_t>(builder_.graph().nodes.size()), stage);
}

void Trace::PopStage() {
  if (!stages_.empty()) stages_.pop_back();
  stage_changes_.emplace_back(static_cast<int32_t>(builder_.graph().nodes.size()),
                              stages_.empty() ? kNoStage : stages_.back());
}

std::vector<int> Trace::Stages() const {
  std::vector<int> stages(builder_.graph().nodes.size(), kNoStage);
  for (size_t c = 0; c < stage_changes_.size(); ++c) {
    const size_t end = c + 1 < stage_changes_.size() ? static_cast<size_t>(stage_changes_[c + 1].first) : stages.size();
    for (size_t i = static_cast<size_t>(stage_changes_[c].first); i < end; ++i) stages[i] = stage_changes_[c].second;
  }
  return stages;
}

StageScope::StageScope(Trace& trace, int stage) : trace_(stage == kNoStage ? nullptr : &trace) {
  if (trace_ != nullptr) trace_->PushStage(stage);
}
StageScope::~StageScope() {
  if (trace_ != nullptr) trace_->PopStage();
}

void Trace::PushRegion() {
  regions_.push_back(next_region_++);
  builder_.SetRegion(regions_.back());
}

void Trace::PopRegion() {
  if (!regions_.empty()) regions_.pop_back();
  builder_.SetRegion(regions_.empty() ? 0 : regions_.back());
}

namespace {

StatusOr<int> PushScope(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(std::string name, ReadString(L, 1, "push_scope"));
  if (session.trace != nullptr) session.trace->PushScope(std::move(name));
  return 0;
}
StatusOr<int> PopScope(lua_State*, Session& session) {
  if (session.trace != nullptr) session.trace->PopScope();
  return 0;
}
// core.print(value, what?): of a traced value when the graph has run, else now.
StatusOr<int> PrintValue(lua_State* L, Session& session) {
  std::string what;
  if (!lua_isnoneornil(L, 2)) {
    ASSIGN_OR_RETURN(what, ReadString(L, 2, "print: name"));
  }
  ASSIGN_OR_RETURN(const auto type, OperandType(L, session, 1));
  if (!type.has_value())
    return absl::InvalidArgumentError(absl::StrCat("print: expected a tensor, got ", Describe(L, 1)));
  if (session.trace != nullptr) {
    ASSIGN_OR_RETURN(const Value value, session.trace->ToValue(L, 1, DType::kF32));
    session.trace->Print(value, std::move(what));
    return 0;
  }
  ASSIGN_OR_RETURN(const Tensor t, ReadTensor(session, L, 1, absl::nullopt, "print"));
  std::printf("%s%s%s%s%s\n", session.prefix.c_str(), what.c_str(), what.empty() ? "" : " ", ToString(t.type).c_str(),
              absl::StrCat(t.type.rank() == 0 ? ": " : ":\n", TensorText(t.view())).c_str());
  return 0;
}
StatusOr<int> PushStage(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const int64_t stage, ReadInt(L, 1, "push_stage"));
  if (session.trace != nullptr) session.trace->PushStage(static_cast<int>(stage));
  return 0;
}
StatusOr<int> PopStage(lua_State*, Session& session) {
  if (session.trace != nullptr) session.trace->PopStage();
  return 0;
}
StatusOr<int> PushRegion(lua_State*, Session& session) {
  if (session.trace != nullptr) session.trace->PushRegion();
  return 0;
}
StatusOr<int> PopRegion(lua_State*, Session& session) {
  if (session.trace != nullptr) session.trace->PopRegion();
  return 0;
}
StatusOr<int> IsTracing(lua_State* L, Session& session) {
  lua_pushboolean(L, session.trace != nullptr);
  return 1;
}
StatusOr<int> Training(lua_State* L, Session& session) {
  lua_pushboolean(L, session.trace != nullptr ? session.trace->training() : session.training);
  return 1;
}
StatusOr<int> SetTraining(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(session.training, ReadBool(L, 1, "set_training"));
  return 0;
}

StatusOr<int> ValueIndex(lua_State* L, Session& session) {
  const auto* v = ToObject<TracedValue>(L, 1);
  if (v == nullptr || session.trace == nullptr || v->trace_id != session.trace->id()) {
    return absl::FailedPreconditionError(
        "a traced value is used after its trace has ended: construct must not keep values for later calls");
  }
  if (lua_type(L, 2) == LUA_TSTRING) return GetTensorField(L, session.trace->g().TypeOf(v->value));
  return IndexOperand(L, session);
}

StatusOr<int> ValueToText(lua_State* L, Session& session) {
  const auto* v = ToObject<TracedValue>(L, 1);
  if (v == nullptr || session.trace == nullptr || v->trace_id != session.trace->id())
    PushString(L, "value of an ended trace");
  else
    PushString(L, absl::StrCat("traced ", ToString(session.trace->g().TypeOf(v->value))));
  return 1;
}

}  // namespace

void OpenTraces(lua_State* L) {
  luaL_getmetatable(L, KindName<TracedValue>::value);
  lua_pushcfunction(L, Entry<ValueIndex>);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, Entry<ValueToText>);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);
  SetFunctions(L, {{"push_scope", Entry<PushScope>},
                   {"pop_scope", Entry<PopScope>},
                   {"print", Entry<PrintValue>},
                   {"push_stage", Entry<PushStage>},
                   {"pop_stage", Entry<PopStage>},
                   {"push_region", Entry<PushRegion>},
                   {"pop_region", Entry<PopRegion>},
                   {"is_tracing", Entry<IsTracing>},
                   {"training", Entry<Training>},
                   {"set_training", Entry<SetTraining>}});
}

}  // namespace mslua
