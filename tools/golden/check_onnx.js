// Runs exported models in ONNX Runtime and compares with what mslua computes.
//
//   npm install onnxruntime-node
//   node tools/golden/check_onnx.js FOLDER                 the samples of //core/ops/testing:onnx_samples
//   node tools/golden/check_onnx.js MODEL.onnx FILE.json   a model on inputs {"inputs": [..], "outputs": [..]}
//
// Prints the largest difference of each model, relative to the greater of 1 and the largest number; exit code 1 where
// one is above 1e-5.
'use strict'
const fs = require('fs')
const path = require('path')
const ort = require('onnxruntime-node')

const arrays = {
  float32: Float32Array, float64: Float64Array, int32: Int32Array, int64: BigInt64Array, uint8: Uint8Array,
  bool: Uint8Array,
}

function tensorOf (t) {
  const numbers = t.data.map(x => t.dtype === 'int64' ? BigInt(x) : Number(String(x).replace('inf', 'Infinity')))
  return new ort.Tensor(t.dtype, arrays[t.dtype].from(numbers), t.dims)
}

function difference (want, got) {
  if (JSON.stringify(want.dims) !== JSON.stringify(got.dims)) return Infinity
  let most = 0
  let scale = 1
  for (let i = 0; i < want.data.length; i++) {
    const a = Number(String(want.data[i]).replace('inf', 'Infinity'))
    const b = Number(got.data[i])
    if (Object.is(a, b) || a === b) continue
    if (Number.isNaN(a) && Number.isNaN(b)) continue
    scale = Math.max(scale, Math.abs(a))
    most = Math.max(most, Number.isFinite(a - b) ? Math.abs(a - b) : Infinity)
  }
  return most / scale
}

async function check (model, file) {
  const { inputs, outputs } = JSON.parse(fs.readFileSync(file, 'utf8'))
  // ONNX Runtime for node has no tensors of bfloat16.
  if (inputs.concat(outputs).some(t => t.dtype === 'bfloat16')) return 0
  const session = await ort.InferenceSession.create(model, { logSeverityLevel: 3 })
  const feeds = {}
  for (const t of inputs) {
    if (session.inputNames.includes(t.name)) feeds[t.name] = tensorOf(t)
  }
  const found = await session.run(feeds)
  return Math.max(0, ...outputs.map(t => difference(t, found[t.name])))
}

async function main () {
  const [first, second] = process.argv.slice(2)
  const pairs = second
    ? [[first, second]]
    : fs.readdirSync(first).filter(f => f.endsWith('.onnx')).sort()
      .map(f => [path.join(first, f), path.join(first, f.replace(/onnx$/, 'json'))])
  let failed = 0
  for (const [model, file] of pairs) {
    let found
    try {
      found = await check(model, file)
    } catch (error) {
      found = String(error.message || error).split('\n')[0]
    }
    const good = found <= 1e-5
    failed += good ? 0 : 1
    if (!good || pairs.length < 10) console.log(`${path.basename(model)}: ${found}`)
  }
  console.log(`${pairs.length - failed} of ${pairs.length} models agree`)
  process.exitCode = failed ? 1 : 0
}

main()
