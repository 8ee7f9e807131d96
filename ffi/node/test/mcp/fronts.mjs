// Each middleware alone in front of a handler of the test's own.

import { createAdaptorServer } from "@hono/node-server";
import { toNodeHandler } from "@modelcontextprotocol/node";
import express from "express";
import Fastify from "fastify";
import { Hono } from "hono";

import { expressMiddleware, fastifyPlugin, honoMiddleware, protect, protectNode } from "../../dist/mcp/index.js";
import { listen } from "./support.mjs";

/** Those that hand on node's response: `answer(request, response)`. */
const NODE_FRONTS = {
  node(answer, gate, options) {
    const handler = protectNode((request, response) => answer(request, response), gate, options);
    // What a handler throws goes on.
    return (request, response) => handler(request, response).catch((error) => response.writeHead(500).end(error.message));
  },
  express(answer, gate, options) {
    const app = express();
    app.use(expressMiddleware(gate, options));
    app.use((request, response) => answer(request, response));
    // Silent: by default it prints what a handler throws.
    app.use((error, _request, response, _next) => response.writeHead(500).end(error.message));
    return app;
  },
  async fastify(answer, gate, options) {
    const app = Fastify();
    await app.register(fastifyPlugin(gate, options));
    app.addContentTypeParser("*", (_request, _payload, done) => done(null));
    app.all("/", async (request, reply) => {
      await answer(request.raw, reply.raw);
      reply.hijack();
    });
    await app.ready();
    return app.server;
  },
};

/** Those that hand on what a handler returns: `answer(request)`. */
const FETCH_FRONTS = {
  fetch: (answer, gate, options) => toNodeHandler(protect({ fetch: answer }, gate, options)),
  hono(answer, gate, options) {
    const app = new Hono();
    app.use(honoMiddleware(gate, options));
    app.all("/", (context) => answer(context.req.raw));
    app.onError((error, context) => context.text(error.message, 500));
    return createAdaptorServer(app);
  },
};

export const nodeFronts = Object.keys(NODE_FRONTS);
export const fetchFronts = Object.keys(FETCH_FRONTS);
export const fronts = [...nodeFronts, ...fetchFronts];

/** The URL of a server of that name, where `answer` is a handler of its kind. */
export async function front(t, name, answer, gate, options = {}) {
  const make = NODE_FRONTS[name] ?? FETCH_FRONTS[name];
  return listen(t, await make(answer, gate, { apiKeys: null, ...options }));
}

/** The same for all of them: `answer` gets a stream to write to, `start(status, type)` begins it. */
export function writing(name, answer) {
  if (name in NODE_FRONTS) {
    return async (request, response) => {
      await answer({
        start: (status, type = "application/json") => {
          response.writeHead(status, { "content-type": type });
          response.flushHeaders();
        },
        write: (text) => response.write(text),
        end: () => response.end(),
        fail: (error) => response.destroy(error),
        request,
      });
    };
  }
  return async (request) => {
    let controller;
    const body = new ReadableStream({ start: (it) => (controller = it) });
    const encoder = new TextEncoder();
    return new Promise((resolve, reject) => {
      Promise.resolve(
        answer({
          start: (status, type = "application/json") =>
            resolve(new Response(body, { status, headers: { "content-type": type } })),
          write: (text) => controller.enqueue(encoder.encode(text)),
          end: () => controller.close(),
          fail: (error) => controller.error(error),
          request,
        }),
      ).catch(reject);
    });
  };
}
