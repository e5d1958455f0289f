// Training graphs, the trainer and datasets, driven from Lua.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "core/base/exit_code.h"
#include "lua/open_session.h"
#include "lua/session.h"
#include "lua/testing/evaluate.h"

namespace mslua {
namespace {

class TrainingTest : public ::testing::Test {
 protected:
  TrainingTest() { Restart(); }

  // A process of its own, so to say.
  void Restart() {
    session_ = *OpenSession({});
    EXPECT_EQ(Eval(R"(
      core = require 'mslua.core'
      f = core.functions
      core.options.fast_dev_run = 1   -- nothing is saved
      -- y = 2 x + 1, learned from 8 rows
      local xs, ys = {}, {}
      for i = 1, 8 do xs[i], ys[i] = {i / 8}, {2 * i / 8 + 1} end
      data = core.dataset {source = {kind = 'numpy_slices', data = {{name = 'x', value = core.tensor(xs)},
                                                                       {name = 'y', value = core.tensor(ys)}}},
                           ops = {{kind = 'batch', size = 4, drop_remainder = true}}}
      function make(optimizer, more)
        w = core.parameter {name = 'w', shape = {1, 1}, init = 'zeros'}
        b = core.parameter {name = 'b', shape = {1}, init = 'zeros'}
        local spec = {name = 'line', inputs = data:schema(), parameters = {w, b}, optimizer = optimizer,
                      forward = function(x, y) local d = f.matmul(x, w) + b - y return (d * d):mean() end}
        for k, v in pairs(more or {}) do spec[k] = v end
        return core.build_train(spec)
      end
      function train(graph, lr, epochs, more)
        local spec = {graph = graph, dataset = data, epochs = epochs, schedule = {kind = 'constant', value = lr},
                      name = 'line', seed = 1, sink = false}
        for k, v in pairs(more or {}) do spec[k] = v end
        local t = core.trainer(spec)
        return t:run(), t
      end
    )"),
              "");
  }

  std::string Eval(const std::string& code) { return testing::Evaluate(*session_, code); }

  std::unique_ptr<Session> session_;
};

TEST_F(TrainingTest, EveryOptimizerLearnsALine) {
  for (const char* optimizer :
       {"{kind = 'sgd'}", "{kind = 'sgd', momentum = 0.5, dampening = 0.2}", "{kind = 'momentum', momentum = 0.5}",
        "{kind = 'momentum', momentum = 0.5, nesterov = true}"}) {
    EXPECT_EQ(Eval(std::string("return train(make(") + optimizer + "), 0.2, 400) < 1e-4"), "true") << optimizer;
  }
  for (const char* optimizer : {"{kind = 'adam'}", "{kind = 'adam_weight_decay'}", "{kind = 'lamb'}"}) {
    EXPECT_EQ(Eval(std::string("return train(make(") + optimizer + "), 0.01, 400) < 0.05"), "true") << optimizer;
  }
}

TEST_F(TrainingTest, OneStepIsTheFormula) {
  // w = b = 0: the gradient of the mean of (wx + b - y)^2 is -2 mean(y x) and -2 mean(y).
  EXPECT_EQ(Eval(R"(
    local graph = make {kind = 'momentum', momentum = 0.9}
    local step = core.stepper {graph = graph, schedule = {kind = 'constant', value = 0.1}}
    local x, y = core.tensor {{1}, {2}, {3}, {4}}, core.tensor {{2}, {4}, {6}, {8}}
    local loss = step(x, y)
    return loss, w.value, b.value)"),
            "30.0 [[3.]] [1.]");
}

TEST_F(TrainingTest, AdamWeightDecayCorrectsItsMomentsOnRequest) {
  // The first step: m = 0.1 g and v = 0.001 g^2; corrected, their quotient is the sign of g.
  for (const auto& [options, want] : {std::pair("", "0.3162 0.3162"), std::pair(", bias_correction = true", "0.1 0.1"),
                                      std::pair(", bias_correction = true, beta1 = 0, beta2 = 0", "0.1 0.1")}) {
    EXPECT_EQ(Eval(std::string("local g = make {kind = 'adam_weight_decay', eps = 1e-8") + options + R"(}
      core.stepper {graph = g, schedule = {kind = 'constant', value = 0.1}} (core.tensor {{1}, {2}, {3}, {4}},
        core.tensor {{2}, {4}, {6}, {8}})
      return ('%.4g %.4g'):format(w.value:item(), b.value:item()))"),
              want);
  }
}

TEST_F(TrainingTest, WeightDecayAndGroups) {
  EXPECT_EQ(Eval(R"(
    local zeros = core.zeros({4, 1})
    local columns = {{name = 'x', value = zeros}, {name = 'y', value = zeros}}
    data = core.dataset {source = {kind = 'numpy_slices', data = columns},
                         ops = {{kind = 'batch', size = 4}}}
    make {kind = 'sgd'}
    local p = core.parameter {name = 'p', init = {2}}
    local q = core.parameter {name = 'q', init = {2}}
    local g = core.build_train {name = 'decay', inputs = data:schema(), parameters = {p, q},
      forward = function(x, y) return (x * p * q):sum() end,
      optimizer = {kind = 'sgd', weight_decay = 0.5, groups = {{params = {q}, weight_decay = 0, lr_scale = 2}}}}
    train(g, 0.1, 1) return p.value, q.value)"),
            "[1.9] [2.]");
}

TEST_F(TrainingTest, AccumulationIsOneLargeBatch) {
  EXPECT_EQ(Eval(R"(
    local function weights(accumulate)
      train(make({kind = 'sgd'}, {accumulate = accumulate}), 0.1, 3)
      return w.value:item()
    end
    return math.abs(weights(1) - weights(4)) < 1e-6)"),
            "true");
  EXPECT_EQ(Eval("make({kind = 'sgd'}, {accumulate = 3})"),
            "test.lua:1: accumulate = 3 does not divide the batch of column 'x', f32[4,1]");
}

TEST_F(TrainingTest, ClippingBoundsTheStep) {
  EXPECT_EQ(Eval(R"(
    local graph = make({kind = 'sgd'}, {clip = {kind = 'norm', value = 1}})
    local step = core.stepper {graph = graph, schedule = {kind = 'constant', value = 1}}
    step(core.tensor {{1}, {2}, {3}, {4}}, core.tensor {{2}, {4}, {6}, {8}})
    local norm = (w.value:item() ^ 2 + b.value:item() ^ 2) ^ 0.5
    return math.abs(norm - 1) < 1e-5)"),
            "true");
}

// Elements of 2e20 are numbers of float32, their squares are not.
TEST_F(TrainingTest, ClippingByAnInfiniteNormIsAnError) {
  const std::string make =
      "make({kind = 'sgd'}, {clip = {kind = 'norm', value = 1}, forward = function(x, y) return (f.matmul(x, w) + b)"
      ":mean() * 1e10 * ";
  EXPECT_EQ(Eval("return train(" + make + "1e8 end}), 0.1, 1) ~= 0"), "true");
  const Status infinite = session_->RunText("train(" + make + "4e10 end}), 0.1, 1)", "=test.lua");
  EXPECT_NE(
      infinite.message().find("the norm of the gradients is infinite at step 1: clip_norm cannot scale them down"),
      absl::string_view::npos)
      << infinite;
  EXPECT_EQ(ExitCodeIn(infinite), kExitDiverged);
}

TEST_F(TrainingTest, LossScaleSkipsInfiniteSteps) {
  EXPECT_EQ(Eval(R"(
    local g = make({kind = 'sgd'}, {loss_scale = true})
    -- The scale overflows f32 at first; halving it brings training back.
    return train(g, 0.2, 400, {loss_scale = {kind = 'dynamic', value = 3e38, factor = 4, window = 1000000}}) < 1e-3)"),
            "true");
}

// The reciprocal of the scale is no normal number of f32.
TEST_F(TrainingTest, LossScalesUpToTheLargestNumberScaleGradientsBack) {
  EXPECT_EQ(Eval(R"(
    local function weights(more, scale)
      local g = make({kind = 'sgd'}, more)
      train(g, 1, 1, {loss_scale = scale and {kind = 'fixed', value = scale}})
      return w.value:item()
    end
    small = function(x, y) local d = f.matmul(x, w) + b - y return (d * d):mean() * 2 ^ -20 end
    local own = weights({forward = small})
    local equal = own ~= 0
    for _, more in ipairs {{}, {accumulate = 2}} do
      for _, power in ipairs {24, 63, 64, 126, 127} do
        local got = weights({forward = small, loss_scale = true, accumulate = more.accumulate}, 2 ^ power)
        equal = equal and math.abs(got / own - 1) < 1e-6
      end
    end
    return equal)"),
            "true");
}

TEST_F(TrainingTest, AmpKeepsParametersInF32) {
  EXPECT_EQ(Eval("local g = make({kind = 'sgd'}, {amp = 'bfloat16'}) local text = g:text() return w.dtype, "
                 "text:find('bf16') ~= nil, train(g, 0.2, 200) < 1e-2"),
            "float32 true true");
}

// Transposed convolutions and sums of products multiply in bf16, a sum of one operand stays one of f32.
TEST_F(TrainingTest, AmpNarrowsWhatMultiplies) {
  EXPECT_EQ(Eval(R"(
    local function narrow(forward)
      local text = make({kind = 'sgd'}, {amp = 'bfloat16', forward = forward}):text()
      return text:find('bf16') ~= nil
    end
    local function transposed(x)
      local image, weight = f.reshape(x, {x.shape[1], 1, 1, 1}), f.reshape(w, {1, 1, 1, 1})
      return f.conv2d_grad_input(image, weight, {input_size = {1, 1}}):mean() + b:sum()
    end
    return narrow(transposed),
      narrow(function(x) return f.einsum({x, w}, {equation = 'ij,jk->ik'}):mean() + b:sum() end),
      narrow(function() return f.einsum({w * 2}, {equation = 'ij->'}) + b:sum() end))"),
            "true true false");
}

TEST_F(TrainingTest, HooksSeeTheStepsAndStop) {
  EXPECT_EQ(Eval(R"(
    local log = {}
    local function hook(name)
      return function(c)
        log[#log + 1] = name .. c.epoch .. '.' .. c.step
        if c.epoch == 2 then c.stop() end
      end
    end
    train(make {kind = 'sgd'}, 0.1, 5, {hooks = {begin = hook 'b', epoch_begin = hook 'e', step_end = hook 's',
                                                 epoch_end = hook 'E', finish = hook 'f'}})
    return table.concat(log, ' '))"),
            "b1.0 e1.0 s1.1 s1.2 E1.2 e2.0 s2.1 f2.1");
  EXPECT_EQ(Eval(R"(
    local log = {}
    train(make {kind = 'sgd'}, 0.1, 5, {hooks = {
      step_begin = function(c) log[#log + 1] = 'b' .. c.epoch .. '.' .. c.step .. '.' .. c.global_step end,
      step_end = function(c)
        log[#log + 1] = 's' .. c.epoch .. '.' .. c.step .. '.' .. c.global_step
        if c.global_step == 3 then c.stop() end
      end,
    }})
    return table.concat(log, ' '))"),
            "b1.1.0 s1.1.1 b1.2.1 s1.2.2 b2.1.2 s2.1.3");
  EXPECT_EQ(Eval(R"(
    local seen
    train(make {kind = 'sgd'}, 0.1, 1, {hooks = {finish = function(c) seen = c.epoch .. '.' .. c.step end}})
    return seen)"),
            "1.2");
}

TEST_F(TrainingTest, ALuaRateIsCalledBeforeEachStep) {
  EXPECT_EQ(Eval(R"(
    local seen = {}
    local t = core.trainer {graph = make {kind = 'sgd'}, dataset = data, epochs = 2, name = 'x', seed = 1, sink = false,
      lr_function = function(step, epoch) seen[#seen + 1] = step .. ':' .. epoch return 0.1 end}
    t:run() return table.concat(seen, ' '))"),
            "1:1 2:1 3:2 4:2");
}

TEST_F(TrainingTest, ALuaRateIsANumberThatARateCanBe) {
  const std::pair<const char*, const char*> rates[] = {{"-0.1", "-0.1"}, {"0 / 0", "nan"}, {"1 / 0", "inf"}};
  for (const auto& [rate, shown] : rates) {
    const std::string message =
        Eval(std::string("core.trainer {graph = make {kind = 'sgd'}, dataset = data, epochs = 2, name = 'x', seed = 1, "
                         "sink = false, lr_function = function(step) if step < 3 then return 0 end return ") +
             rate + " end}:run()");
    EXPECT_NE(message.find(std::string("the learning rate's function gave ") + shown +
                           " for step 3: expected a finite number, at least 0"),
              std::string::npos)
        << message;
  }
}

TEST_F(TrainingTest, EvaluationCountsValidRows) {
  // Five rows in batches of four: the padded tail does not count.
  EXPECT_EQ(Eval(R"(
    local columns = {{name = 'x', value = core.tensor {1, 2, 3, 4, 10}}}
    local d = core.dataset {source = {kind = 'numpy_slices', data = columns},
                            ops = {{kind = 'batch', size = 4}}}
    local g = core.build_eval {name = 'sum', inputs = d:schema(), outputs = {'mean'},
                               forward = function(x) return (x * core.valid_mask(4)):sum() end}
    local sums, samples = core.evaluate(g, d)
    return sums.mean[1] / samples)"),
            "4");
}

TEST_F(TrainingTest, CheckpointsComeBack) {
  const std::string path = ::testing::TempDir() + "/one.ckpt";
  EXPECT_EQ(Eval("core.save_checkpoint('" + path +
                 "', {a = core.tensor {1, 2}, b = core.tensor(3, 'int64')}) local c = core.load_checkpoint('" + path +
                 "') return c.a, c.b, c.b.dtype"),
            "[1., 2.] 3 int64");
  EXPECT_NE(Eval("core.load_checkpoint('/nowhere')").find("/nowhere"), std::string::npos);
}

TEST_F(TrainingTest, ResumeGivesTheSameBits) {
  for (const char* optimizer :
       {"{kind = 'adam'}", "{kind = 'adam', use_amsgrad = true, use_nesterov = true}",
        "{kind = 'adamw', weight_decay = 0.1}", "{kind = 'adamw', use_amsgrad = true}", "{kind = 'adadelta'}",
        "{kind = 'adamax'}", "{kind = 'nadam'}", "{kind = 'radam'}", "{kind = 'rmsprop', momentum = 0.5}",
        "{kind = 'rmsprop', centered = true}", "{kind = 'adagrad'}", "{kind = 'ftrl', l1 = 0.01}",
        "{kind = 'adafactor'}", "{kind = 'adafactor', beta1 = 0}",
        "{kind = 'momentum', momentum = 0.9, wrapper = {kind = 'lars'}}"}) {
    SCOPED_TRACE(optimizer);
    const std::string folder = ::testing::TempDir() + "/resume";
    EXPECT_EQ(std::system(("rm -rf " + folder).c_str()), 0);
    const std::string options = "{checkpoint = {prefix = 'c', directory = '" + folder + "', steps = 2, async = false}}";
    const std::string train = std::string("train(make ") + optimizer + ", 0.1, ";
    const std::string straight = Eval(train + "4) return w.value, b.value");
    Restart();
    EXPECT_EQ(Eval(train + "2, " + options + ")"), "");
    Restart();
    EXPECT_EQ(Eval("core.options.resume = '" + folder + "' " + train + "4) return w.value, b.value"), straight);
    Restart();
  }
}

// The scale overflows float32 in the first two steps, which update nothing: Adam does not count them.
TEST_F(TrainingTest, ResumeRemembersTheStepsThatWereSkipped) {
  const std::string folder = ::testing::TempDir() + "/skipped";
  EXPECT_EQ(std::system(("rm -rf " + folder).c_str()), 0);
  const std::string make = "make({kind = 'adam'}, {loss_scale = true}), 0.1, ",
                    scale = "loss_scale = {kind = 'dynamic', value = 3.4e38, factor = 4, window = 1000000}",
                    result = " return ('%.9g'):format(w.value:item())";
  const std::string straight = Eval("train(" + make + "4, {" + scale + "})" + result);
  Restart();
  const std::string updates = Eval("train(make {kind = 'adam'}, 0.1, 4, {max_steps = 6})" + result);
  EXPECT_NEAR(std::stod(straight), std::stod(updates), 1e-5) << "8 steps of which 2 are skipped are 6 updates";
  Restart();
  const std::string first = Eval("train(" + make + "2, {" + scale + ", checkpoint = {prefix = 'c', directory = '" +
                                 folder + "', steps = 2, async = false}})");
  Restart();
  EXPECT_EQ(Eval("core.options.resume = '" + folder + "' train(" + make + "4, {" + scale + "})" + result), straight)
      << first;
}

TEST_F(TrainingTest, GeneratorsRunLua) {
  EXPECT_EQ(Eval(R"(
    local d = core.dataset {source = {kind = 'generator', length = 3, column_names = {'i'},
                                      source = function(i) return i * 10 end}, ops = {}}
    local out = {}
    for x in d:iterator() do out[#out + 1] = x:item() end
    return table.concat(out, ' '), d:size())"),
            "10 20 30 3");
  EXPECT_EQ(Eval(R"(
    local d = core.dataset {source = {kind = 'generator', column_names = {'a', 'b'}, source = function()
      local n = 0
      return function()
        n = n + 1
        if n <= 4 then return {n, n}, core.tensor(n, 'int32') end
      end
    end}, ops = {{kind = 'batch', size = 3}}}
    local rows = {}
    for a, b in d:iterator(2) do rows[#rows + 1] = a.shape[1] .. 'x' .. a.shape[2] .. ':' .. b.dtype end
    return table.concat(rows, ' '))"),
            "3x2:int32 1x2:int32 3x2:int32 1x2:int32");
  EXPECT_NE(Eval("core.dataset {source = {kind = 'generator', length = 1, column_names = {'i'}, source = function(i) "
                 "error 'boom' end}, ops = {}}:schema()")
                .find("boom"),
            std::string::npos);
}

TEST_F(TrainingTest, MistakesAreOneMessage) {
  EXPECT_EQ(
      Eval("make {kind = 'sdg'}"),
      "test.lua:1: optimizer: kind is 'sdg', expected one of adadelta, adafactor, adagrad, adam, adam_weight_decay, "
      "adamax, adamw, ftrl, lamb, lazy_adam, momentum, nadam, radam, rmsprop, sgd (did you mean 'sgd'?)");
  EXPECT_EQ(Eval("make {kind = 'sgd', nesterov = true}"),
            "test.lua:1: optimizer: nesterov needs a momentum and no dampening");
  EXPECT_EQ(Eval("make({kind = 'sgd'}, {parameters = {}})"),
            "test.lua:1: build_train: there is no parameter to train (requires_grad of all is false?)");
  EXPECT_EQ(Eval("make({kind = 'sgd'}, {forward = function(x, y) return x end})"),
            "test.lua:1: the loss should be a float scalar, got f32[4,1]: reduce it with ops.ReduceMean, or give the "
            "recipe a loss");
  EXPECT_EQ(Eval("make({kind = 'sgd'}, {forward = function(x, y) return x:sum():astype('int32') end})"),
            "test.lua:1: expected a float loss, got int32, which has no gradient: compute it of float tensors, "
            "x:astype(ms.float32) makes one");
  EXPECT_EQ(Eval("make({kind = 'sgd'}, {forwards = 1})"),
            "test.lua:1: build_train: unknown field 'forwards' (did you mean 'forward'?)");
  EXPECT_EQ(Eval("core.dataset {source = {kind = 'cifar'}, ops = {}}"),
            "test.lua:1: dataset: unknown source 'cifar' (did you mean 'cifar10'?)");
  EXPECT_NE(
      Eval("core.dataset {source = {kind = 'mnist', dataset_dir = '/nowhere'}, ops = {}}:size()").find("/nowhere"),
      std::string::npos);
  const Status diverged = session_->RunText("train(make {kind = 'sgd'}, 1e30, 50)", "=test.lua");
  EXPECT_EQ(diverged.message().substr(0, 31), "test.lua:24: the loss is infini") << "the loop's line in train()";
  EXPECT_EQ(ExitCodeIn(diverged), kExitDiverged);
}

}  // namespace
}  // namespace mslua
