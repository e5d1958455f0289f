--- The element type that a word of --dtype, or of amp, names.
return { f32 = "float32", f16 = "float16", bf16 = "bfloat16" }
