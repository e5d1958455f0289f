---@meta mslua.core
-- The C module under the library: what `require "mslua.core"` gives. This file is its contract; it holds no code
-- and is not embedded. Everything users see is built on it by the Lua files of this folder.
--
-- Axes and subscripts count from 1 (negative from the end) in this interface; labels, token ids and argmax
-- results from 0. Every function raises one error, "recipe.lua:12: MatMul: ...", with the line of the user's file:
-- the nearest caller outside the embedded library.

---@class core
local core = {}

---@alias dtype "float32"|"float64"|"bfloat16"|"float16"|"int32"|"int64"|"uint8"|"bool"
---@alias operand Tensor|Value|Parameter|number|boolean

------------------------------------------------------------------------------------------------------------- tensors

---Eager tensor: immutable, row-major, reference counted. `t.shape` is a fresh list, `t.dtype` a name, `t.size` the
---number of elements. `#t` is the first dimension. `t[i]` is a sub-tensor that shares memory, or a number (a boolean)
---when `t` has one dimension. `+ - * / ^` and unary minus broadcast as NumPy does. `tostring(t)` is NumPy's text.
---@class Tensor
---@field shape integer[]
---@field dtype dtype
---@field size integer
---@field ndim integer

---A traced value: a node of the graph being built. Same fields, methods and arithmetic as Tensor, no values: `<`, `<=`,
---`:item()`, `:totable()`, `[i]` on one dimension raise an error that says what to use instead.
---@class Value : Tensor

---Methods that Tensor, Value and Parameter share live in one table, where the library may add more:
---astype(dtype) reshape(...|{...}) transpose(...|{...}) sum(axis?, keep_dims?) mean max argmax(axis?) totable() item()
---free(); mslua.ops adds operators. `t:method(...)` looks there.
---@type table<string, function>
core.methods = {}

---The metatable of what a tensor's `shape` is; mslua.shape fills it.
core.shape_metatable = {}

---@param value number|boolean|table|Tensor nested lists; a Tensor is copied (cast when dtype is given)
---@param dtype? dtype default float32; bool for booleans; a Tensor's own
---@param shape? integer[] reshapes; a single number fills it
---@return Tensor
function core.tensor(value, dtype, shape) end
function core.zeros(shape, dtype) end
function core.ones(shape, dtype) end
function core.full(shape, value, dtype) end
---@param n integer rows  @param m? integer columns, default n
function core.eye(n, m, dtype) end
---arange(stop) | arange(start, stop, step?, dtype?): from 0 like NumPy's (these are values, not subscripts); int32 by
---default
---when all are whole, else float32. arange(stop, dtype) too.
function core.arange(...) end
---Uniform in [0,1) and standard normal from `seed`, default the session's (Philox). `name` is the stream; without one a
---counter.
function core.rand(shape, dtype, name, seed) end
function core.randn(shape, dtype, name, seed) end
---"Tensor" | "Value" | "Parameter" | "Graph" | "Dataset" | "Trainer" | "Tokenizer" | "DecodeStream" | nil
function core.kind(x) end

----------------------------------------------------------------------------------------------------------- operators

---Calls operator `name` (`core.ops()`): eagerly, or traced when a trace is active or an argument is a Value.
---@param name string "matmul"
---@param args table the operands in order (a variadic operand is a list of tensors, or the rest), then positional
---  attributes; `args.n` when there may be holes; `args.instance`, the cell's field that holds the operator, for dumps
---@param attrs? table named attributes; names that begin with `_` are the compiler's own: `_in_strategy`,
---  `_out_strategy`
---  (text "((2,4),(4,1))"), any prim attr; values string, number, boolean or list of integers
---@return Tensor|Value ... each output
function core.op(name, args, attrs) end

---The snake-case function of every operator: core.functions.matmul(x, w, {transpose_b = true}). Operands, then
---positional attributes, then one table of named ones.
---@type table<string, function>
core.functions = {}

---Checks constructor arguments of an operator's class (positional attributes, last table named ones) and gives the
---table of
---named attributes for core.op; an unknown name is an error with 'did you mean'.
---@param name string
---@param args table list of the constructor's arguments
---@return table attrs
function core.bind_attrs(name, args) end

---@class OpInfo
---@field name string "reduce_sum"
---@field class string? "ReduceSum"; nil when users make none
---@field doc string
---@field inputs {name: string, variadic: boolean, type: "T"|"index"|"bool"|"float"|"any"}[]
---@field attrs {name: string, kind: "bool"|"int"|"float"|"string"|"ints"|"dtype"|"axis"|"axes", default: any,
---  required: boolean, doc: string, choices: string[]?}[]
---@field outputs string[]
---@field elementwise boolean
---@field random boolean

---Every operator of this build, sorted by name.
---@return OpInfo[]
function core.ops() end

--------------------------------------------------------------------------------------------------------- parameters

---@class Parameter : Tensor
---@field name string the full name, "conv1.weight": the path from the root that is trained
---@field value Tensor a copy of the value (makes it when it does not exist yet); assignable: p.value = tensor. Both are
---  whole: where ranks keep parts of it, all of them read it together, and each keeps its part of what it is given
---@field requires_grad boolean settable
---@field saved boolean settable: checkpoints hold its value
---@field layerwise_parallel boolean settable
---@field parallel_optimizer boolean settable
---@field comm_fusion integer settable
---@field init any as given

---A parameter. Its value is made in the session's store on first use, by its full name at that time: the bits depend on
---seed and name only. Two live parameters of one name share no memory (the second one's key gets a suffix).
---@param spec {name: string, shape: integer[], dtype?: dtype, init: any, requires_grad?: boolean, saved?: boolean,
---  layerwise_parallel?: boolean, parallel_optimizer?: boolean, comm_fusion?: integer}
---  init: number | Tensor | nested list | "zeros" "ones" "normal" "uniform" "xavier_uniform" "xavier_normal"
---  "he_uniform"
---  "he_normal" "truncated_normal" "identity" | {"normal", sigma = 0.01, mean = 0} {"uniform", scale = 0.07}
---  {"xavier_uniform", gain = 1} {"he_normal", negative_slope = 0, mode = "fan_in"|"fan_out", nonlinearity =
---  "leaky_relu"|"relu"}
---  {"truncated_normal", sigma = 0.01, mean = 0, a = -2, b = 2} {"constant", 3} (MindSpore's names and defaults).
---  A Tensor or list also gives shape and dtype when those are absent.
---@return Parameter
function core.parameter(spec) end

---The same with requires_grad = false and kind "state": running statistics.
---@return Parameter
function core.state(spec) end

---Traced: the graph gets an output that replaces p's value when the step is done. Eager: at once.
---@param p Parameter  @param value operand of p's shape and dtype
function core.assign(p, value) end

---@return string? problem with the name of an initializer, such as "normal" or MindSpore's "Normal"
function core.initializer_problem(name) end

---Whether the ranks keep parts of it. An error where another pipeline stage keeps it.
---@param p Parameter
---@return boolean
function core.is_part(p) end
---Every rank's text, by rank from 1; all ranks call it.
---@param text string  @param what string for messages
---@return string[]
function core.gather_texts(text, what) end
---An error when a rank's tensors are other than those of rank 0; all ranks call it.
---@param what string for the message  @param tensors Tensor[]
function core.check_same(what, tensors) end

---Parameters and states whose values exist: name -> Parameter is the library's business; this lists store keys.
---@return {name: string, shape: integer[], dtype: dtype, kind: "parameter"|"state"}[]
function core.store() end

--------------------------------------------------------------------------------------------------------------- traces

---The scope path of following nodes ("Net/conv1"), and of random streams: every Cell call pushes and pops.
---Both do nothing outside a trace. A trace that ends by an error restores the stack by itself.
function core.push_scope(name) end
function core.pop_scope() end
---Recompute: nodes between these are computed again in the backward pass.
function core.push_region() end
function core.pop_region() end
---The pipeline stage, from 0, of the nodes between these.
function core.push_stage(stage) end
function core.pop_stage() end
---Prints a tensor; a traced value when the graph has run, named by `name` or the scope path.
function core.print(value, name) end
---Products of what follows in the trace compute in this 16-bit type; nil: in float32. Gives what was before.
---@param dtype dtype?
---@return dtype?
function core.set_amp(dtype) end
---@return boolean
function core.is_tracing() end
---Whether the graph that is traced is that of all ranks together (semi_auto_parallel, auto_parallel).
function core.is_global() end
---Whether the cell that is called trains: what BatchNorm and Dropout ask. All cells do while build_train traces, but
---those that are told not to where it has heed_cells. With an argument, that a cell was told or nil: whether that one
---would.
---@param told? boolean
---@return boolean
function core.training(told) end
---Says what the cell that is called was told; nil: nothing. Gives what was before; nil: one answer holds for all cells,
---and is not changed.
---@param told boolean?
---@return boolean?
function core.set_training(told) end
---From here on one answer holds for all cells that are called outside training; nil: each cell says it again. Gives
---what was before.
---@param on boolean?
---@return boolean?
function core.force_training(on) end
---Identity whose gradient is zero.
function core.stop_gradient(x) end

---While a graph is traced: x as a value of it, and a value that equals x and has no gradient.
---@return Value x, Value detached
function core.detach(x) end
---How many nodes the graph that is traced has.
---@return integer
function core.traced_nodes() end
---Says that a part of the graph that is traced, its nodes from `first` on, has a gradient of its own.
---@param name string of the cell, for messages
---@param first integer
---@param inputs any[] floats; the part reads them detached
---@param labels string[] their names for messages
---@param outputs any[] floats
---@param backward fun(...: Value): (any|false)[] from the gradients of the outputs those of the inputs; false: zero
---@return Value[] outputs, which have that gradient
function core.set_gradient(name, first, inputs, labels, outputs, backward) end

---@alias InputSpec {name?: string, dtype: dtype, shape: integer[]}

---Traces fn on inputs of these types.
---@param fn function|table anything callable
---@param inputs InputSpec[]
---@return Graph
function core.trace(fn, inputs) end

---@class Graph
---methods: text() -> string (IR), save(path), nodes() -> integer,
---inputs() -> {name, kind, dtype, shape}[], outputs() -> {name, dtype, shape, updates}[],
---run(...) -> outputs (Tensors for its data inputs in order, eager)

---Differentiates. The function returned traces f once for each list of argument types (Lua control flow and captured
---values are those of that call), compiles, and runs.
---@param f function|table
---@param argnums? integer[] which arguments (from 1), default {1}; {} for none
---@param weights? Parameter[]
---@return fun(...): Tensor[], Tensor[], Tensor[]  all outputs of f (the first is differentiated: a scalar), gradients
---  of the
---  arguments, gradients of the weights
function core.value_and_grad(f, argnums, weights) end

--- f, compiled: it is traced at each call, and equal graphs are compiled once.
---@param f function|table
---@return fun(...): Tensor[] the results of f, which are tensors; each call draws other random numbers
function core.compiled(f) end

---Graph of a training step.
---@param spec {
---  name: string,                    -- of the graph
---  forward: function,               -- (columns ...) -> loss [, more values that become outputs "out1", ...]
---  inputs: InputSpec[],             -- the batch's columns
---  parameters: Parameter[],         -- those to train; gradients are aggregated and updated in this order
---  network?: Parameter[],           -- all that it owns: one that `forward` uses, is not among them and requires a
---                                   -- gradient is an error
---  optimizer: {
---    kind: string,                  -- of core.optimizers(), with its settings by name: momentum = 0.9
---    weight_decay?: number,         -- default of all parameters
---    wrapper?: table,               -- an optimizer that wraps, with its settings: {kind = "lars", ...}
---    groups?: {params: Parameter[], weight_decay?: number, lr_scale?: number, lr?: string,
---      wrapped?: boolean}[]         -- `wrapped`: whether the wrapper concerns them, default true; one not in a
                                   -- group: the defaults; `lr` names the scalar input of its rate ("lr.1"), default
-- "lr"
---  },
---  accumulate?: integer,            -- micro-batches that the batch is split into; default 1
---  clip?: {kind: "norm"|"value", value: number},   -- by global norm, or elementwise
---  grad_norm?: boolean,             -- adds the output `grad_norm`, which clip norm has anyway
---  gradients?: boolean,             -- adds the output `gradient.<key>` of each parameter
---  ema?: number,                    -- the step keeps an average of each parameter ("ema.w"), with this decay
---  loss_scale?: boolean,            -- adds the scalar input `loss_scale` and an output `finite`; a step with
---  inf/nan updates nothing
---  aggregate?: {ranks: integer[], mean?: boolean, fp32_sync?: boolean, bucket_bytes?: integer, segments?: integer[],
---    shards?: {ranks: integer[], place: integer, replicas: integer[], threshold: integer, accumulate?: boolean}},
---                                   -- gradients are combined over these ranks, in buckets by size or by count; with
---                                   -- `shards` a rank updates its flat slice of parameters from `threshold` bytes on
---  shard?: {stages?: integer, feeds?: integer, dataset?: string, search?: string, memory_bytes?: integer,
---    load_file?: string, save_file?: string, optimizer_bytes?: integer, optimizer_level?: integer,
---    strategies?: {name: string, strategy: string}[], bucket_bytes?: integer, segments?: integer[],
---    scatter_bytes?: integer, gather_bytes?: integer, fp32_sync?: boolean},
---                                   -- the step is one of all ranks, which is sharded: ShardOptions of
---                                   -- core/step/global_view.h
---  heed_cells?: boolean,            -- cells that were told to evaluate do; default: all train
---  amp?: dtype }                    -- "bfloat16" or "float16": of products and what follows; parameters stay f32
---Scalar inputs of the result: `lr`, `step`, [`loss_scale`]; outputs: `loss`, [`grad_norm`],
---[`finite`], the
---extra values, then one update a parameter, optimizer state ("moments.w", "moment1.w", "moment2.w") and assigned
---state.
---@return Graph graph, string[] idle names of the parameters that no gradient reaches
function core.build_train(spec) end
---Several such steps as one graph, made one after the other on each batch; each with its `name`, all with the same
---inputs, and without `shard` and `loss_scale`. Outputs: `loss`, the sum of the `loss.<name>`, then what build_train
---gives of each.
---@param name string of the graph
---@param list table[] as build_train takes them
---@return Graph graph, string[] idle
function core.build_steps(name, list) end

---One graph of the same step, or evaluation, for batches of several shapes. Their parameters are the same, and so are
---the parameters and states that they update.
---@param graphs Graph[] of build_train, build_steps or build_eval, for shapes() of a dataset
---@param shares number[] which part of the batches has that shape
---@return Graph
function core.of_shapes(graphs, shares) end

---@class OptimizerInfo
---@field kind string "adam"
---@field class string "Adam"
---@field doc string
---@field wraps boolean it changes the gradients of another optimizer
---@field fields {name: string, kind: "params"|"rate"|"number"|"numbers"|"boolean"|"weight_decay"|"loss_scale"|
---  "optimizer"|"filter", doc: string, settings: string[], default?: any, min?: number, above?: number, max?: number,
---  below?: number, words: string[]}[] in the order of arguments

---The optimizers, sorted by kind: each is a file of core/optim.
---@return OptimizerInfo[]
function core.optimizers() end

---@class OptimizerHistory: userdata the steps and updates that an optimizer has made

---What is wrong with the settings of an optimizer together, nil: nothing.
---@param kind string
---@param settings table
---@return string?
function core.optimizer_problem(kind, settings) end

---The history of an optimizer that has done nothing yet. Graphs that are built with the same one share the optimizer's
---state; what runs them counts on.
---@return OptimizerHistory
function core.optimizer_history() end

---What the optimizer of a history keeps for these parameters, by the names that checkpoints give it:
---"moments.fc.weight". An error where ranks have slices of it.
---@param history OptimizerHistory
---@param parameters Parameter[]
---@return table<string, Parameter>
function core.optimizer_states(history, parameters) end

---@param history OptimizerHistory
---@return integer steps the place in its schedule
---@return integer updates those that were made
---@return number rate_scale
---@return number least_rate
function core.optimizer_counts(history) end

---@param history OptimizerHistory
---@param steps integer
---@param updates integer
---@param rate_scale number
---@param least_rate number
function core.set_optimizer_counts(history, steps, updates, rate_scale, least_rate) end

---The schedules of the learning rate, sorted by name: each is a file of core/schedule.
---@return {name: string, doc: string, fields: {name: string, kind: string, doc: string, default?: any, optional:
---  boolean, min?: number, above?: number, max?: number, below?: number, unit?: string}[]}[]
function core.schedules() end
---The highest rate of a schedule; an error where its fields make no sense.
---@param schedule Schedule {kind: string, ...fields}, or {kind = "constant", value: number}
---@return number
function core.schedule_value(schedule) end
---The rate of a step, from 1.
---@return number
function core.schedule_at(schedule, step) end

---Graph of an optimizer's update alone: its data inputs are the gradients of spec.parameters, in order.
---@param spec {name: string, inputs: {}, parameters: Parameter[], optimizer: table}
---@return Graph
function core.build_update(spec) end

---Graph of an evaluation: forward(columns ...) -> values named by spec.outputs (default "out1", ...); training() is
---false.
---The scalar input `valid` is the number of rows that count.
---@param spec {name: string, forward: function, inputs: InputSpec[], outputs?: string[], amp?: dtype,
---  history?: OptimizerHistory, own_rows?: integer}  history: of the optimizer whose averages are read instead of the
---  parameters; own_rows: of the recipe's batches, where the graph is one for any number of rows
---@return Graph
function core.build_eval(spec) end
---Gives a parameter the average that an optimizer's trainings have kept of it.
---@param parameter Parameter
---@param history OptimizerHistory
function core.use_average(parameter, history) end

---Writes an ONNX model of a network that build_eval has traced for batches of two sizes.
---@param spec {graph: Graph, other: Graph, checks?: Graph[], path: string, dtype: dtype, metadata: string[][]}
---  checks: traces for further sizes, for which the model is right too
---@return integer operators, integer bytes of weights
function core.export_onnx(spec) end

---Writes a file: it has the whole text, or stays as it was. Errors have the exit code of files.
---@param path string
---@param text string
function core.write_file(path, text) end

---Opens an empty temporary folder in a folder that is there, for files that belong in that folder together.
---@param folder string
---@return any files
---@return string path of the temporary folder
function core.open_files(folder) end

---Removes the temporary folder; with `keep` its files first take their places in the folder, in descending order of
---names. An error where a folder has such a name: then none has moved.
---@param files any
---@param keep boolean
function core.close_files(files, keep) end

---Writes a tensor as a PNG file, [n, c, h, w] as a grid.
---@param path string
---@param x Tensor
---@param options {low: number, high: number, columns: integer, padding: integer}
function core.write_png(path, x, options) end

---What is wrong with the name of a summary, of a scalar where `scalar`; "" where nothing is.
---@return string
function core.summary_problem(name, scalar) end
---Records for the training that runs; an error where none does. A step below 0 stands for the training's.
function core.summary_scalar(name, value, step) end
---@param x Tensor
function core.summary_histogram(name, x, step) end
function core.summary_text(name, text, step) end
---@param options {low: number, high: number, columns: integer, padding: integer}
function core.summary_image(name, x, step, options) end

---While a graph is traced: f32[n], 1 for the rows of the batch that count and 0 for padding (the tail of an
---evaluation).
---@param n integer rows of the batch
---@return Value
function core.valid_mask(n) end

----------------------------------------------------------------------------------------------------------- tokenizers

---A folder or file with a tokenizer (core/text).
---@return Tokenizer
function core.tokenizer(path) end
---The same from the text of a tokenizer.json.
---@return Tokenizer
function core.tokenizer_of_json(text) end
---The files that core.tokenizer would read; empty: there is no tokenizer.
---@return string[]
function core.tokenizer_files(path) end
---@param kind "bpe"|"wordpiece"  @param texts string[]  @param special string[]  @param lowercase boolean of WordPiece
---@return string json the text of a tokenizer.json
function core.train_tokenizer(kind, texts, vocab_size, special, lowercase) end
---The text of a file, which may be packed by gzip. It must be UTF-8.
---@return string
function core.read_text(path) end
---The place of the first byte from `from` on that is not UTF-8; nil: there is none.
function core.invalid_utf8(text, from) end
---@return integer[] ids, integer[]? types of a pair: which text each belongs to
function core.tokenizer_encode(tokenizer, text, pair, add_special_tokens, parse_special_tokens) end
---@param ids integer[]|Tensor int32 [n]
---@return string
function core.tokenizer_decode(tokenizer, ids, skip_special_tokens) end
---@return {vocab_size: integer, special_tokens: table<string, integer>, roles: table<string, string>,
---  chat_template: string, files: string[]}
function core.tokenizer_info(tokenizer) end
---@return integer? id
function core.tokenizer_id(tokenizer, token) end
---@return string? token
function core.tokenizer_token(tokenizer, id) end
---@return DecodeStream
function core.decode_stream(tokenizer, skip_special_tokens) end
---The characters that are complete with this id; without one what is left at the end.
---@return string
function core.decode_push(stream, id) end

------------------------------------------------------------------------------------------------------------- datasets

---A dataset described as data; nothing is opened until its size, schema or an iterator is asked for.
---@param spec {
---  source: {kind: string, ...},  -- a kind of core.sources() with its fields; numpy_slices: data is a list of
---    {name: string, value: Tensor}; generator: with a length source is called with i from 1, without one it returns an
---    iterator; both give a value a column
---  num_shards?: integer, shard_id?: integer, made_at?: string,  -- "recipe.lua:12", for errors
---  ops: ({kind: "map", transforms: table[], columns?: string[], names?: string[]} |
---    {kind: "project"|"rename", columns: string[], names?: string[]} | {kind: "keep", samples: integer[]} |
---    {kind: "shuffle", buffer_size: integer} |
---    {kind: "batch", size: integer, drop_remainder?: boolean, padding?: {name: string, shape: integer[],
---    value: number}[], lengths?: Tensor, boundaries?: integer[], sizes?: integer[]} |
---    {kind: "repeat"|"take"|"skip", count: integer} |
---    {kind: "code", file: string, arguments: string, inputs?: string[], outputs?: string[]} |
---    {kind: "weighted", weights: number[], count: integer, replacement: boolean} |
---    {kind: "mix", box: boolean, alpha: number, prob: number, image: string, label: string})[],
---  seed?: integer, ragged?: boolean }  -- ragged: samples may differ in shape; row(i) reads them
---  transforms: {kind: "random_crop", height, width, left, top, right, bottom} {kind: "random_horizontal_flip", prob}
---  {kind: "resize"|"center_crop", height, width} {kind: "rescale", scale, shift} {kind: "normalize", mean = {..},
---  std = {..}}
---  {kind: "hwc2chw"} {kind: "type_cast", dtype} {kind: "one_hot", num_classes}
---@return Dataset
function core.dataset(spec) end
---The sources of samples that core/data/sources declares, sorted by kind; fields as mslua.args describes them, and
---`path` for the one that names the file or folder; pictures: the first column is one of pictures, uint8
---[h, w, channels].
---@return {kind: string, class: string, doc: string, pictures: boolean, fields: mslua.Field[]}[]
function core.sources() end
---The vision transforms that core/data/transforms declares, sorted by kind. A transform of core.dataset has the kind
---and the fields.
---@return {kind: string, class: string, doc: string, random: boolean, fields: mslua.Field[]}[]
function core.vision_transforms() end
---How often random tensors were asked for without a stream of their own.
---@return integer
function core.random_numbers() end
---Such tensors are numbered from n on, which says what they hold.
---@param n integer
function core.number_random(n) end
---Whose rows of a global batch the datasets that are opened from now on give: rows [feed * b, (feed + 1) * b) of
---feeds * b.
---@param feeds integer  @param feed integer from 0
function core.set_feed(feeds, feed) end
---@class Dataset
---methods: size() -> batches (samples when not batched) an epoch, batch_size() -> integer|nil, full_batches() ->
---whether none has fewer rows, schema() -> {name, dtype, shape}[] of a batch, shapes() -> {columns = as schema() has
---them, share = of the batches}[] of each shape that batches have, from the longest bucket on, length() -> samples,
---whatever ranks share; nil where only running the source tells, row(i) -> the columns of
---sample i, each in its own shape, where core.dataset got ragged = true, place(i) -> where the reader found
---sample i, "people.csv:3", class_names() -> string[]|nil, iterator(epochs?, first?) -> function giving the
---columns as Tensors, nil at an end

-------------------------------------------------------------------------------------------------- checkpoints, session

---@param path string
---@param values table<string, Tensor|Parameter>|Parameter[]
---@param metadata? table<string, string> of a .safetensors file
function core.save_checkpoint(path, values, metadata) end
---@return table<string, Tensor> values, number unsaved the digest of what it leaves out; 0: not known
---(negative: of what training has changed; -1: not known)
function core.load_checkpoint(path) end
---The tensors of the checkpoint that `last`, `best` or a path means for a recipe that keeps its checkpoints in
---`directory` (nil: in its run folders), its path and step. With `together` all ranks of the training call this: they
---load the one that rank 0 finds, and get from each other what they cannot read.
---@return table<string, Tensor> values, string path, integer step, number unsaved as load_checkpoint's, integer seed
function core.load_named(word, recipe, directory, together) end
---The seed of the training that saved the checkpoint which load_named's arguments mean, by its manifest alone: a
---damaged one is not passed over. Nil: none trained it, or it cannot be read.
---@return integer?
function core.seed_of(word, recipe, directory, together) end
---The directory that a run folder names as that of its checkpoints; nil: they are in the run folder.
---@param run string
---@return string?
function core.recorded_checkpoints(run) end
---An error when parameters that checkpoints leave out have other values than those of that digest; 0: not known.
---@param unsaved number
---@param parameters Parameter[]
---@param path string of the checkpoint
function core.compare_unsaved(unsaved, parameters, path) end
---Older versions named parameters otherwise: gives for names of a network that a checkpoint lacks the name that it has;
---and which of the checkpoint's names are an optimizer's state. `unsaved`: the network's parameters that checkpoints
---leave out, whose state they may have.
---@param wanted string[]  @param stored string[]  @param unsaved? string[]
---@return table<string, string> older, table<string, boolean> states
function core.match_names(wanted, stored, unsaved) end
---A checkpoint or a file of tensors, whose values are read when they are asked for.
---@param path string
---@return {tensors: (fun(self): {name: string, dtype: dtype, shape: integer[]}[]),
---  read: fun(self, name: string): Tensor}
function core.open_weights(path) end
---Gives a parameter the value of tensors that follow one another along its first dimension, each with as many rows. A
---parameter without a value yet reads its rank's part alone, when it gets memory.
---@param parameter Parameter[] of one
---@param pieces {from: table, name: string}[] `from`: of open_weights
---@param transposed? boolean the only piece is the parameter's transpose
function core.read_when_made(parameter, pieces, transposed) end
---The value of a JSON file; null is nil.
---@param path string
---@return any
function core.read_json(path) end

---What the command line asked for; written by main, read by the library.
---@class Options
---@field verb string "run", "train", "repl", ...
---@field file string? the recipe or script
---@field args string[] of the script
---@field overrides {[1]: string, [2]: string}[] key=value in order, values unparsed
---@field preset string?
---@field device "cpu"|"cuda" of --device, else of ms.set_context; device_given string? of --device alone;
---  device_id string? of ms.set_context
---@field rank integer
---@field ranks integer
---@field seed integer? of --seed
---@field out string?  @field resume string?  @field ckpt string? flags, nil when not given
---@field max_steps integer?  @field fast_dev_run integer?  @field overfit integer?
---@field log_every integer|"epoch"|nil
---@field json boolean?
---@field save_graphs integer? 0..3, and save_graphs_path: written by ms.set_context, read when a training graph is
---  compiled; tune boolean?, reference_kernels boolean?, vector_products boolean?, device_check boolean?,
---  conv_allow_tf32 boolean?, matmul_allow_tf32 boolean? likewise;
---  denormals boolean?, for ranks to compare
---@type Options
core.options = {}

---Joins the other ranks of the job; again: nothing. Sets options.rank and options.ranks.
---@param backend? string a name of core.backends()
---@param plaintext? boolean connections between hosts may go without encryption
function core.join(backend, plaintext) end
---The backends of collectives, sorted by name; device: the kind of devices that one is for.
---@return { name: string, device: string? }[]
function core.backends() end
---A name for each rank's host, by rank from 1; nil when the job does not know.
---@return string[]?
function core.hosts() end
---Ranks of the job as it was started, whether this one has joined them (ms.communication.init) or not.
---@return integer
function core.started_ranks() end

---Whether nothing that goes to other hosts can be read on its way.
---@return boolean
function core.private_network() end
---Whether the command line or the environment names a TLS configuration.
---@return boolean
function core.tls_given() end

---Why graphs cannot run on a CUDA device here, or nil.
---@return string?
function core.device_problem() end

--- The numbers of ranks that the job may continue with, as its recipe says.
---@param min integer
---@param max integer
function core.allow_ranks(min, max) end

--- Whether what all ranks have to say is this rank's to print.
---@return boolean
function core.speaks() end
function core.set_seed(seed, of_user) end

---Whether denormals are numbers, or zero as operands and results, in the threads that compute.
---@param keep boolean
function core.set_denormals(keep) end
---Operators that are called one by one are compiled again when they are called next, as core.options say then.
function core.forget_programs() end
---@return integer
function core.seed() end
---How tensors are written.
---@return {precision: integer, threshold: integer, edgeitems: integer}
function core.print_options() end
---@param precision integer
---@param threshold integer
---@param edgeitems integer
---@param linewidth? integer columns; nil: the terminal's
---@param sci_mode? boolean nil: where the elements ask for it
function core.set_print_options(precision, threshold, edgeitems, linewidth, sci_mode) end
---Raises `format:format(...)` at the user's line.
function core.fail(format, ...) end
---The same for numbers that are NaN: the process ends with exit code 7.
function core.fail_diverged(format, ...) end
---"recipe.lua:12" of the nearest caller outside the library, or nil.
function core.where() end
---While a graph is traced, errors name this line, "recipe.lua:12", until another line of the user runs.
function core.at(place) end
---" (did you mean 'epochs'?)" or "".
---@param word string  @param known string[]
function core.did_you_mean(word, known) end
---The names of the environment's variables that begin with prefix, sorted.
---@param prefix string
---@return string[]
function core.environment(prefix) end
---Text of a recipe inside the binary ("quickstart"), or nil.
---@return string?
function core.library_recipe(name) end
---Called by all ranks of a REPL between two steps: whether the user wants the line that runs to stop.
---@return boolean
function core.stop_together() end
---The source of a file of the library, "mslua/nn/cells/dense.lua"; nil: there is none.
---@param path string
---@return string?
function core.library_text(path) end
---The names of the library's modules that begin with prefix, sorted: "mslua.nn.loss.mse".
---@param prefix string
---@return string[]
function core.library_modules(prefix) end
---Seconds of a monotonic clock.
function core.clock() end
---"0.3.0"
core.version = ""


------------------------------------------------------------------------------------------------------------ training

---Runs a training in C++. `run()` returns the last epoch's mean loss; raises on NaN/Inf, data and checkpoint
---errors.
---@param spec {
---  graph: Graph,                            -- of build_train
---  dataset: Dataset, epochs: integer,
---  max_steps?: integer, metrics_limit?: integer, time_steps?: integer,
---  parameters: Parameter[],                 -- of the network; a checkpoint holds them and the optimizer's state
---  names: string[],                         -- of each of the parameters, in checkpoints
---  schedule: Schedule,                      -- of the learning rate, see schedules.lua: tables of numbers, evaluated
---  in C++
---  rates?: {input: string, schedule?: Schedule, lr_function?: function}[],  -- of several steps, instead of schedule
---  history?: OptimizerHistory,              -- of the optimizer: schedules and counts of updates continue from there
---  lr_function?: fun(step: integer, epoch: integer): number,  -- instead of schedule: at the safe point before each
---  step, step from 1
---  loss_scale?: {kind: "fixed", value: number} | {kind: "dynamic", value: number, factor: number, window: integer},
---  sink: boolean,                           -- dataset_sink_mode: prefetch; same numbers, same lines
---  check_loss: boolean?,                    -- false: a loss that is not a number does not end training
---  loss_every: integer|"epoch"|nil,         -- LossMonitor: print the loss line every n steps; nil: no LossMonitor
---  time_every?: integer,                    -- TimeMonitor: "epoch time: 12.3 ms, per step time: 1.2 ms" every n
---  epochs
---  companions?: {name: string, content: string}[],  -- files that each checkpoint's folder has too
---  checkpoint?: {prefix: string, directory: string, steps: integer, seconds: integer, keep_max: integer,
---  keep_minutes: integer,
---    integrated: boolean, async: boolean, exception_save: boolean},
---  eval?: {graph: Graph, dataset: Dataset, metrics: {name: string, kind: "mean"|"percent"}[], every_epochs: integer,
---  every_steps?: integer},
---  plateau?: {monitor: string, patience: integer, min_delta: number, mode: "min"|"max", factor: number,
---  cooldown: integer, min_lr: number},      -- ReduceLROnPlateau
---  histograms?: {every_steps: integer, parameters: boolean, gradients: boolean},  -- Histograms
---  early_stopping?: {monitor: string, patience: integer, min_delta: number, mode: "min"|"max"},
---  hooks?: {begin?: function, epoch_begin?: function, step_begin?: function, step_end?: function, epoch_end?:
---  function, finish?: function},
---    -- each hook is called at its safe point with one table {epoch, step (in the epoch), global_step, epochs,
---  steps_per_epoch, loss?, lr,
---    -- metrics?, stop = function()}; absent hooks cost nothing; epoch and step count from 1
---  together?: boolean,              -- the ranks train one network: they stop and save as one
---  broadcast?: boolean,             -- rank 0's parameters are everybody's before the first step
---  name: string, seed: integer,
---  config?: string }                        -- text of the resolved recipe: the run folder's config.lua
---@return {run: fun(self): number, metrics: fun(self): table<string, number>}
function core.trainer(spec) end

---Runs an evaluation over a whole dataset: outputs of the graph are sums over valid rows.
---With `together` every rank runs its part of the dataset, and all get the sums of the whole.
---@param graph Graph of build_eval  @param dataset Dataset  @param together? boolean
---@return table<string, number[]> sums of each output's elements by its name, integer samples
function core.evaluate(graph, dataset, together) end

---One training step at a time, for TrainOneStepCell: compiled at once, state in the session's store.
---@param spec {graph: Graph, schedule?: Schedule, lr_function?: function, history?: OptimizerHistory,
---  broadcast?: boolean, together?: boolean}
---@return fun(...: Tensor): Tensor columns of a batch -> the loss
function core.stepper(spec) end

return core
