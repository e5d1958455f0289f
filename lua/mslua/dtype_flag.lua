--- The element type that a word of --dtype names.
return { f32 = "float32", f16 = "float16", bf16 = "bfloat16" }
