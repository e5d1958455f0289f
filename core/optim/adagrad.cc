#include "core/optim/define.h"

namespace mslua {

MSLUA_OPTIMIZER(adagrad) {
  OptimizerDef def("adagrad", "Adagrad");
  def.Doc(
      "Adagrad (Duchi, Hazan and Singer, 2011): the gradient divided by the root of the sum of the squares of all "
      "gradients. The sum begins at accum. Without weight decay a table of embeddings is updated by the rows that a "
      "batch names: the time does not depend on its height.");
  def.Params().Number("accum", 0.1, AtLeast(0), "the first value of the sum of squares");
  def.Rate(1e-3).Bool("update_slots", true, "add each step's squares to the sum");
  def.LossScale().WeightDecay();
  def.Unnamed(
      [](const Attrs&, double weight_decay) { return weight_decay == 0 ? UnnamedRows::kSame : UnnamedRows::kUpdated; });
  def.Update("apply_adagrad",
             "Adagrad (Duchi et al., 2011): g = grad + weight_decay * param; sum = sum + g^2, with update_slots; "
             "new_param = param - lr * g / sqrt(sum), and param where the sum is 0.")
      .State({"sum", "accum", "accum", true, {}})
      .Scalars({"lr", "weight_decay"})
      .Settings({"update_slots"})
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        u.Let("grad", "grad + weight_decay * param");
        if (u.attrs().Bool("update_slots")) u.Let("sum", "sum + grad * grad");
        return u.Results({u.Let("param", "select(gt(sum, 0), param - lr * grad / sqrt(sum), param)"), u.Get("sum")});
      })
      .Sample({{"update_slots", false}});
  return def;
}

}  // namespace mslua
