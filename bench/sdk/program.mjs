// A client or a worker of a measurement: program.mjs client|worker URL…, with an instance of the SDK for each node. It ends
// when its stdin does. A client reads a call from each line of stdin and writes its result as a line, as the calls end.
import "./node20.mjs";
import { createInterface } from "node:readline";
import { Resonate } from "@resonatehq/sdk";

const [role, ...urls] = process.argv.slice(2);

// Requests of the SDK; its streams are GET.
let requests = 0;
const send = globalThis.fetch;
globalThis.fetch = (url, init) => {
  if (init?.method === "POST") requests++;
  return send(url, init);
};

const nodes = urls.map((url) => new Resonate({ url, group: `bench-${role}s`, logLevel: "error" }));
for (const resonate of nodes) {
  resonate.register("empty", async (_ctx, n, _text) => n);
  resonate.register("steps", function* (ctx, n, _text) {
    let sum = n;
    for (let i = 1; i <= 3; i++) sum += yield* ctx.run(async () => i);
    return sum;
  });
}

const calls = {
  run: (resonate, { id, n, text }) => resonate.run(id, "empty", n, text),
  steps: (resonate, { id, n, text }) => resonate.run(id, "steps", n, text),
  rpc: (resonate, { id, n, text }) => resonate.rpc(id, "empty", n, text, resonate.options({ target: "bench-workers" })),
};

const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const lines = createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const call = JSON.parse(line);
  calls[call.kind](nodes[call.n % nodes.length], call).then(
    (result) => write({ number: call.number, result, requests }),
    (error) => write({ number: call.number, error: String(error?.stack ?? error), requests }),
  );
});
lines.on("close", () => process.exit(0));

// Ready once each node has this process's stream.
const opened = () => nodes.every((resonate) => resonate.network.adapter.eventSource.readyState === 1);
while (!opened()) await new Promise((resolve) => setTimeout(resolve, 5));
write({ ready: true });
