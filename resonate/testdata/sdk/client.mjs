// One scenario of the test: client.mjs SCENARIO ARGUMENTS. It prints the result as one line of JSON. An error that reaches
// user code ends it with exit code 1.
import { Resonate } from "@resonatehq/sdk";
import { register } from "./functions.mjs";

const resonate = new Resonate({ group: "clients", ttl: Number(process.env.TTL), logLevel: "error" });
register(resonate);

const workers = resonate.options({ target: "workers" });
const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// until repeats a lookup until it finds something.
async function until(find) {
  for (;;) {
    const found = await find();
    if (found) return found;
    await pause(50);
  }
}

// search finds promises by a request of the protocol that the SDK has no method for.
async function search(data) {
  const res = await fetch(process.env.RESONATE_URL, {
    method: "POST",
    body: JSON.stringify({ kind: "promise.search", head: { corrId: "s", version: "2026-04-01" }, data }),
  });
  return (await res.json()).data.promises;
}

// scenarios use each feature once. id makes the ids of their promises out of their names.
const scenarios = {
  run: (id) => resonate.run(id("run"), "empty"),
  steps: (id) => resonate.run(id("steps"), "steps", 3, 0),
  rpc: (id) => resonate.rpc(id("rpc"), "double", 21, workers),
  calls: (id) => resonate.rpc(id("calls"), "calls", 4, workers),
  runCalls: (id) => resonate.run(id("run-calls"), "calls", 5),
  sleeps: (id) => resonate.rpc(id("sleeps"), "sleeps", 1500, workers),
  asks: async (id) => {
    const handle = await resonate.beginRpc(id("asks"), "asks", workers);
    const asked = `${id("asks")}:0`;
    await until(() => resonate.promises.get(asked).catch(() => undefined));
    await resonate.promises.resolve(asked, { data: encode("from outside") });
    return handle.result();
  },
  standalone: async (id) => {
    const name = id("standalone");
    await resonate.promises.create(name, Date.now() + 60_000, { tags: { "resonate:external": "true" } });
    const handle = await resonate.get(name);
    const result = handle.result().then(
      () => "resolved",
      (reason) => `rejected: ${reason}`,
    );
    await resonate.promises.reject(name, { data: encode("refused") });
    return result;
  },
  fails: (id) =>
    resonate.rpc(id("fails"), "fails", workers).then(
      () => "no error",
      (error) => error.message,
    ),
  schedule: async (id) => {
    const name = id("every-second");
    const schedule = await resonate.schedule(name, "* * * * * *", "double", 8, workers);
    const fired = await until(async () => {
      const promises = await search({ tags: { "resonate:schedule": name }, state: "resolved" });
      return promises[0];
    });
    await schedule.delete();
    return JSON.parse(Buffer.from(fired.value.data, "base64").toString());
  },
  leaves: async (id) => {
    const name = id("leaves");
    const left = await resonate.rpc(name, "leaves", 9, workers);
    const child = await until(async () => {
      const promises = await search({ state: "resolved", tags: { "resonate:parent": name } });
      return promises.find((p) => p.id.startsWith(`${name}:d`));
    });
    return [left, JSON.parse(Buffer.from(child.value.data, "base64").toString())];
  },
  group: async (id) => {
    const ids = Array.from({ length: 40 }, (_, i) => `${id("who")}-${i}`);
    return [...new Set(await Promise.all(ids.map((who) => resonate.rpc(who, "who", workers))))].sort();
  },
};

// all runs all scenarios at once.
async function all(id) {
  const entries = Object.entries(scenarios).map(async ([name, run]) => [name, await run(id)]);
  return Object.fromEntries(await Promise.all(entries));
}

async function main([scenario, ...args]) {
  switch (scenario) {
    case "all":
      return all((name) => name);
    // All scenarios for each object of ids by names, one round after the other.
    case "rounds": {
      const results = [];
      for (const round of args) {
        const ids = JSON.parse(round);
        console.log("begin");
        results.push(await all((name) => ids[name] ?? name));
      }
      return results;
    }
    case "rpc": {
      const [id, fn, ...rest] = args;
      return resonate.rpc(id, fn, ...rest.map(Number), workers);
    }
    // A call with recorded steps and a promise that is settled from outside for each id, until stdin ends.
    case "load": {
      let ended = false;
      process.stdin.on("end", () => {
        ended = true;
      });
      process.stdin.resume();
      let done = 0;
      for (const id of args) {
        if (ended) break;
        const sum = await resonate.rpc(id, "steps", 3, 10, workers);
        if (sum !== 3) throw new Error(`${id} is ${sum}`);
        const outside = `${id}:outside`;
        await resonate.promises.create(outside, Date.now() + 60_000, { tags: { "resonate:external": "true" } });
        const settled = await resonate.promises.resolve(outside, { data: encode(done) });
        if (settled.state !== "resolved") throw new Error(`${outside} is ${settled.state}`);
        console.log(`done ${++done}`);
      }
      return done;
    }
  }
  throw new Error(`scenario ${scenario}`);
}

main(process.argv.slice(2)).then(
  (result) => {
    console.log(JSON.stringify(result));
    process.exit(0);
  },
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
