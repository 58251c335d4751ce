// The functions of the test's workers. LOG gets a line for what happens outside of promises.
import "./node20.mjs";
import { appendFileSync } from "node:fs";
import { Never } from "@resonatehq/sdk";

export const pid = process.env.PID ?? "";

function note(line) {
  appendFileSync(process.env.LOG, `${line}\n`);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export function register(resonate) {
  resonate.register("empty", function* () {
    return 7;
  });
  resonate.register("double", async (_ctx, x) => 2 * x);
  resonate.register("who", async () => pid);
  // n recorded steps; each takes ms and is noted when it begins.
  resonate.register("steps", function* (ctx, n, ms) {
    let sum = 0;
    for (let i = 0; i < n; i++) {
      sum += yield* ctx.run(async () => {
        note(`${ctx.id} ${i} ${pid}`);
        await pause(ms);
        return i;
      });
    }
    return sum;
  });
  resonate.register("calls", function* (ctx, x) {
    const doubled = yield* ctx.rpc("double", x, ctx.options({ target: "workers" }));
    return doubled + 1;
  });
  resonate.register("sleeps", function* (ctx, ms) {
    yield* ctx.sleep(ms);
    return "slept";
  });
  resonate.register("asks", function* (ctx) {
    const promise = yield* ctx.promise();
    return yield* promise;
  });
  resonate.register("fails", function* (ctx) {
    yield* ctx.run(
      async () => {
        throw new Error("no luck");
      },
      ctx.options({ retryPolicy: new Never() }),
    );
  });
  resonate.register("leaves", function* (ctx, x) {
    yield* ctx.detached("double", x, ctx.options({ target: "workers" }));
    return "left";
  });
}
