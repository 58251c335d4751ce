// A worker of a group: worker.mjs GROUP. It runs until it is killed.
import { Resonate } from "@resonatehq/sdk";
import { pid, register } from "./functions.mjs";

register(new Resonate({ group: process.argv[2], pid, ttl: Number(process.env.TTL), logLevel: "error" }));
console.log("ready");
