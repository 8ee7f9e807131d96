// What is behind /mcp and /private/mcp, whichever SDK serves it: the gate, the tokens, and the tools.

import { Gate, RateLimit } from "callgate";
import { z } from "zod";

const CALLER_BURST = 20;
const ANONYMOUS_BURST = 10;
const FORWARDED_BURST = 5;

/** What ran and what was decided, by the name of the caller, for /stats. */
export class Record {
  ran = {};
  gateNs = {};

  ranFor(name) {
    this.ran[name] = (this.ran[name] ?? 0) + 1;
  }

  spentFor(name, gateNs) {
    (this.gateNs[name] ??= []).push(gateNs);
  }
}

/** Rates that give back one call an hour, so that nothing a test counts depends on how fast it runs. */
export function makeGate() {
  const hourly = (burst) => new RateLimit(1, { per: "1h", burst });
  return new Gate({
    limits: {
      caller: hourly(CALLER_BURST),
      anonymous: hourly(ANONYMOUS_BURST),
      forwarded: hourly(FORWARDED_BURST),
    },
    policies: {
      authenticated: [["caller", "caller"]],
      anonymous: [["anonymous", "shared"]],
      "forwarded-bearer": [["forwarded", "shared"], ["caller", "caller"]],
    },
    capacity: 1_000,
  });
}

/** The authentication of this server: `valid-NAME` is NAME's token. Undefined for every other one. */
export function authOf(authorization) {
  const [, token, name] = /^Bearer (valid-(.+))$/i.exec(authorization ?? "") ?? [];
  if (name === undefined) return undefined;
  return { token, clientId: name, scopes: [], expiresAt: Math.floor(Date.now() / 1_000) + 3_600 };
}

/** The same for the SDKs' own authentication, which demands a token. */
export function verifierOf(InvalidToken) {
  return {
    async verifyAccessToken(token) {
      const auth = authOf(`Bearer ${token}`);
      if (auth === undefined) throw new InvalidToken();
      return auth;
    },
  };
}

/** Adds the tools. `name` says who calls, `signalOf` takes a handler's context. */
export function addTools(server, record, name, signalOf) {
  server.registerTool(
    "echo",
    { description: "Answers what it was told.", inputSchema: z.object({ text: z.string() }) },
    ({ text }) => {
      record.ranFor(name);
      return { content: [{ type: "text", text }], structuredContent: { result: text } };
    },
  );
  server.registerTool("wait", { description: "Runs until its caller has had enough." }, async (context) => {
    record.ranFor(name);
    const signal = signalOf(context);
    await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  });
  return server;
}
