--- BERT as Hugging Face has it, with and without the prefix bert., and with the heads of its published files.
local rows = {
  { "embeddings.word_embeddings.weight", "words.embedding_table" },
  { "embeddings.position_embeddings.weight", "positions.embedding_table" },
  { "embeddings.token_type_embeddings.weight", "segments.embedding_table" },
  { "embeddings.position_ids", nil, "ignored" },
  { "cls.predictions.bias", "mlm.bias", bare = true },
  { "cls.predictions.decoder.weight", "words.embedding_table", "tied" },
  { "cls.predictions.decoder.bias", "mlm.bias", "tied" },
  { "cls.seq_relationship.weight", nil, "ignored" },
  { "cls.seq_relationship.bias", nil, "ignored" },
}

local function norm(file, ours, bare)
  rows[#rows + 1] = { file .. ".weight", ours .. ".gamma", bare = bare }
  rows[#rows + 1] = { file .. ".bias", ours .. ".beta", bare = bare }
end

local function dense(file, ours, how, bare)
  rows[#rows + 1] = { file .. ".weight", ours .. ".weight", how, bare = bare }
  rows[#rows + 1] = { file .. ".bias", ours .. ".bias", how, bare = bare }
end

norm("embeddings.LayerNorm", "norm")
for i, part in ipairs { "query", "key", "value" } do
  dense("encoder.layer.#.attention.self." .. part, "layers.#.attention.in_proj", { i, 3 })
end
dense("encoder.layer.#.attention.output.dense", "layers.#.attention.out_proj")
norm("encoder.layer.#.attention.output.LayerNorm", "layers.#.attention_norm")
dense("encoder.layer.#.intermediate.dense", "layers.#.intermediate")
dense("encoder.layer.#.output.dense", "layers.#.output")
norm("encoder.layer.#.output.LayerNorm", "layers.#.output_norm")
dense("pooler.dense", "pooler")
dense("cls.predictions.transform.dense", "mlm.transform", nil, true)
norm("cls.predictions.transform.LayerNorm", "mlm.transform_norm", true)
dense("classifier", "classifier", nil, true)
dense("qa_outputs", "qa", nil, true)

local activations = { gelu = "gelu", gelu_new = "gelu_new", gelu_pytorch_tanh = "gelu_new" }
local architectures = { none = "BertModel", mlm = "BertForMaskedLM", classifier = "BertForSequenceClassification",
  qa = "BertForQuestionAnswering" }

---@type mslua.Family
return {
  model_type = "bert", prefix = "bert.", rows = rows,
  older = { { "LayerNorm%.gamma$", "LayerNorm.weight" }, { "LayerNorm%.beta$", "LayerNorm.bias" } },
  heads = { "^mlm%.", "^classifier%.", "^qa%.", "^pooler%." },
  required = { vocab_size = true, num_hidden_layers = true, num_attention_heads = true, hidden_size = true },
  network = function(c, has, refuse)
    local activation = activations[c.hidden_act or "gelu"]
    if not activation then refuse("hidden_act", "gelu, gelu_new or gelu_pytorch_tanh") end
    if c.position_embedding_type and c.position_embedding_type ~= "absolute" then
      refuse("position_embedding_type", '"absolute"')
    end
    if c.is_decoder then refuse "is_decoder" end
    local classes = has "classifier.weight"
    for _, name in ipairs(type(c.architectures) == "table" and c.architectures or {}) do
      if classes and name ~= architectures.classifier then
        refuse("architectures", '"' .. architectures.classifier .. '", which classifier.weight is of')
      end
    end
    local head = classes and "classifier" or has "qa_outputs.weight" and "qa" or has "cls.predictions.bias" and "mlm"
    return require "mslua.models.bert" {
      vocab = c.vocab_size, block = c.max_position_embeddings or 512, layers = c.num_hidden_layers,
      heads = c.num_attention_heads, dim = c.hidden_size, hidden = c.intermediate_size,
      segments = c.type_vocab_size or 2, dropout = c.hidden_dropout_prob or 0.1, epsilon = c.layer_norm_eps or 1e-12,
      activation = activation, head = head or "none", classes = classes and classes[1],
      pooler = has "pooler.dense.weight" ~= nil,
    }
  end,
  config = function(net)
    local c = net.config
    return {
      architectures = { architectures[c.head] }, vocab_size = c.vocab, max_position_embeddings = c.block,
      num_hidden_layers = c.layers, num_attention_heads = c.heads, hidden_size = c.dim, intermediate_size = c.hidden,
      type_vocab_size = c.segments, hidden_dropout_prob = c.dropout, attention_probs_dropout_prob = 0,
      layer_norm_eps = c.epsilon, hidden_act = c.activation, position_embedding_type = "absolute",
      num_labels = c.head == "classifier" and c.classes or nil,
    }
  end,
}
